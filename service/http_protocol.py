"""An HTTP protocol class for uvicorn that limits request heads, idle time and the number of connections.

Start uvicorn with ``--http service.http_protocol:LimitedHttpProtocol``. uvicorn itself waits for request heads without
a limit, so a client that sends one byte a minute could hold a connection. ``service.middleware.body_limit`` limits
request bodies.
"""

from __future__ import annotations

import asyncio
import resource
from http import HTTPStatus
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from service.problem_details import problem

HEAD_S: Final = 10.0
"""Seconds in which a request line and its headers have to be there, from the connection or their first byte on."""

HEAD_BYTES: Final = 16 << 10
"""Largest head that comes in pieces; one that is there at once is bounded by what is read at once."""

SPARE_FILES: Final = 200
"""Open files that connections leave to everything else."""

MOST_CONNECTIONS: Final = 8192

LINGER_S: Final = 1.0
"""Seconds for which a refused client may still read why."""


class LimitedHttpProtocol(HttpToolsProtocol):
    """An HTTP/1.1 connection that is closed when a head takes too long, or when there are too many of them."""

    head_s: float = HEAD_S
    most: int = max(64, min(MOST_CONNECTIONS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - SPARE_FILES))

    _late: asyncio.TimerHandle | None = None
    _in_head = False
    _head_bytes = 0
    _refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, or refuse the connection."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            detail = f"This process serves {self.most} connections at once: try again, or run another one."
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", detail)
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        """Read what came; a head that is not complete keeps its time, and has an end."""
        if self._refused:
            return
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES:
                self.send_400_response("The head is too long.")

    def on_message_begin(self) -> None:
        """Begin to wait for the rest of a head, unless the connection waits already."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0
        if self._late is None:
            self._wait()

    def on_headers_complete(self) -> None:
        """Go on with a request whose head is whole.

        Raises:
            ValueError: It names no host, or several; the parser refuses the request with it.
        """
        self._in_head = False
        self._waited()
        hosts = sum(name == b"host" for name, _ in self.headers)
        if hosts > 1 or (hosts == 0 and self.parser.get_http_version() != "1.0"):
            raise ValueError("expected one Host")
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._waited()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, as everything is refused."""
        self._refuse(HTTPStatus.BAD_REQUEST, "bad-request", f"{msg} A head may have 16 KiB.")

    def _wait(self) -> None:
        self._late = self.loop.call_later(self.head_s, self._too_late)

    def _waited(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_late(self) -> None:
        self._late = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait()  # whoever sends ahead has the time from the end of the answer before
            return
        detail = f"The head of the request was not there within {self.head_s:g} s."
        self._refuse(HTTPStatus.REQUEST_TIMEOUT, "request-timeout", detail)

    def _refuse(self, status: HTTPStatus, slug: str, detail: str) -> None:
        if self._refused or self.transport.is_closing():
            return
        answer = problem(status, slug, status.phrase, detail, headers={"Connection": "close"})
        head = b"HTTP/1.1 %d %b\r\n" % (status, status.phrase.encode())
        headers = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        self._waited()
        self.transport.write(head + headers + b"\r\n" + bytes(answer.body))
        # Closed at once, with something still on its way, the connection would be reset and the answer lost.
        self._refused = True
        self.transport.write_eof()
        self.loop.call_later(LINGER_S, self.transport.close)
