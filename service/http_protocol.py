"""An HTTP protocol class for uvicorn that limits request heads, idle time and the number of connections.

``python -m service`` uses it. uvicorn itself waits for request heads without a limit, so a client that sends one byte a
minute could hold a connection. ``service.middleware.body_limit`` limits request bodies.
"""

import asyncio
import resource
from http import HTTPStatus
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.problem_details import problem_response
from speciate.settings import KEEP_ALIVE_S

HEAD_S: Final = 10.0
"""Seconds in which a request head must arrive, counted from the connection or from its first byte."""

HEAD_BYTES: Final = 16 << 10
"""Maximum size of a head that arrives in pieces. A head in one piece is limited by the read size."""

SPARE_FILES: Final = 200
"""File descriptors reserved for everything but connections."""

MAX_CONNECTIONS: Final = 8192

LINGER_S: Final = 1.0
"""Seconds for which a rejected client may still read the response."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """An HTTP/1.1 connection with limits on its head, its idle time and the number of connections."""

    head_s: float = HEAD_S
    max_connections: int = max(64, min(MAX_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES))

    _timer: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0
    _rejected = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.timeout_keep_alive = KEEP_ALIVE_S
        if len(self.connections) > self.max_connections:
            detail = (
                f"This process serves at most {self.max_connections} connections. Retry, or run another API process."
            )
            self._reject(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", detail)
        else:
            self._start_timer()

    def data_received(self, data: bytes) -> None:
        if self._rejected:
            return
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.send_400_response("The request head is too long.")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        if self._timer is None:
            self._start_timer()

    def on_headers_complete(self) -> None:
        """Handle a head; ``ValueError``, for the parser to reject it, if it has no Host header or several."""
        self._in_head = False
        self._stop_timer()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0"):
            raise ValueError("expected one Host")
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._reject(HTTPStatus.BAD_REQUEST, "bad-request", f"{msg} The limit for a head is 16 KiB.")

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.head_s, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._start_timer()  # a pipelined request has the full time after the previous response
            return
        detail = f"The request head did not arrive within {self.head_s:g} s."
        self._reject(HTTPStatus.REQUEST_TIMEOUT, "request-timeout", detail)

    def _reject(self, status: HTTPStatus, slug: str, detail: str) -> None:
        if self._rejected or self.transport.is_closing():
            return
        answer = problem_response(status, slug, status.phrase, detail, headers={"Connection": "close"})
        head = b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode())
        headers = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        self._stop_timer()
        self.transport.write(head + headers + b"\r\n" + bytes(answer.body))
        # Closing the connection while the client still sends would reset it and lose the response.
        self._rejected = True
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)
