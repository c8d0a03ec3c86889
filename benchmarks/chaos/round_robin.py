"""A client that distributes requests over replicas like a load balancer and skips those that do not respond."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import httpx


class RoundRobin:
    """Asks the replicas in turn; a request fails only when every replica refuses it."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._clients = [httpx.Client(base_url=url, timeout=20, trust_env=False) for url in urls]
        self._turn = cycle(range(len(urls)))
        self.passed_over = 0

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Return the first answer that is no refusal of the process itself."""
        first = next(self._turn)
        answer: httpx.Response | None = None
        for step in range(len(self._clients)):
            try:
                answer = self._clients[(first + step) % len(self._clients)].request(method, path, **options)
            except httpx.TransportError:
                self.passed_over += 1
                continue
            if answer.status_code != 503:
                return answer
            self.passed_over += 1
        if answer is None:
            raise httpx.ConnectError("no replica answers")
        return answer

    def close(self) -> None:
        """Close all connections."""
        for client in self._clients:
            client.close()
