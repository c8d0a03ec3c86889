"""Clients of policies, kept so that their connections are reused."""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final

from speciate.domain.policy import Policy
from speciate.policies import build_client
from speciate.policies.kind import ClientContext
from speciate.ports.policy import PolicyClient

_MOST_CLIENTS: Final = 128


class ClientPool:
    """Cache of policy clients by policy version and key. Threads may share one instance."""

    def __init__(
        self, context: ClientContext, wrap: Callable[[Policy, PolicyClient], PolicyClient] = lambda _, client: client
    ) -> None:
        self._context, self._wrap = context, wrap
        self._clients: dict[tuple[str, str | None], tuple[PolicyClient, PolicyClient]] = {}
        self._changing = threading.Lock()

    def __call__(self, policy: Policy) -> PolicyClient:
        key = (policy.digest, policy.api_key_id)
        with self._changing:
            client_pair = self._clients.pop(key, None)
            if client_pair is None:
                client = build_client(policy, self._context)
                client_pair = client, self._wrap(policy, client)
            self._clients[key] = client_pair
            if len(self._clients) > _MOST_CLIENTS:  # runs that learn have a new version at every step
                self._close_oldest()
        return client_pair[1]

    def close(self) -> None:
        with self._changing:
            while self._clients:
                self._close_oldest()

    def _close_oldest(self) -> None:
        oldest, _ = self._clients.pop(next(iter(self._clients)))
        if isinstance(oldest, AbstractContextManager):
            oldest.__exit__(None, None, None)
