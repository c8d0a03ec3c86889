"""Limit a whole request by one deadline: connecting, sending, and receiving all of the response.

``httpx`` limits each step, and every read of the headers is a step: a server that sends one byte a second could hold
the caller indefinitely.
"""

from __future__ import annotations

import math
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import httpcore

_PIECE_BYTES: Final = 16 << 10
_own: Final = threading.local()


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Limit all requests of this thread in the block that use ``DeadlineBackend`` to this many seconds in total."""
    _own.until = time.monotonic() + seconds
    try:
        yield
    finally:
        _own.until = math.inf


def _left(timeout_s: float | None, error: type[httpcore.TimeoutException]) -> float | None:
    left = getattr(_own, "until", math.inf) - time.monotonic()
    if left <= 0:
        raise error("the deadline of the request has passed")
    if math.isinf(left):
        return timeout_s
    return left if timeout_s is None else min(left, timeout_s)


class DeadlineBackend(httpcore.SyncBackend):
    """Network backend whose connections keep the deadline of the thread that uses them."""

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect; see ``httpcore``."""
        left = _left(timeout, httpcore.ConnectTimeout)
        return _DeadlineStream(super().connect_tcp(host, port, left, local_address, socket_options))


class _DeadlineStream(httpcore.NetworkStream):
    def __init__(self, stream: httpcore.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        # In pieces: a server may also receive slowly.
        for at in range(0, len(buffer), _PIECE_BYTES):
            self._stream.write(buffer[at : at + _PIECE_BYTES], _left(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _DeadlineStream(
            self._stream.start_tls(ssl_context, server_hostname, _left(timeout, httpcore.ConnectTimeout))
        )

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)
