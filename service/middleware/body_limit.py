"""Limit the size of request bodies and the time they may take."""

import asyncio
import time
from collections.abc import Container
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import error_response
from service.problem_details import problem_response
from speciate.domain.errors import TooLargeError

BODY_S: Final = 20.0
"""Seconds in which a small body must arrive."""

SLOWEST_BYTES_S: Final = 32 << 10
"""Minimum transfer rate of a larger body, in bytes per second."""

OPEN_BYTES: Final = 64 << 10
"""Largest body of a form that anyone may send."""

LINGER_S: Final = 1.0
"""Seconds for which a rejected body is still read."""


class BodyLimit:
    """Reads each body first. Responds 413 if it is too large and 408 if it is too slow."""

    def __init__(self, app: ASGIApp, max_bytes: int, body_s: float = BODY_S, open_paths: Container[str] = ()) -> None:
        self._app = app
        self._open_paths = open_paths
        self._body_s = body_s
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        most = OPEN_BYTES if scope["path"] in self._open_paths else self._max_bytes
        declared = Headers(scope=scope).get("content-length", "")
        try:
            body = None if declared.isdecimal() and int(declared) > most else await self._read(receive, most)
        except TimeoutError:
            await self._refuse_slow(scope, receive, send)
            return
        if body is None:
            await self._refuse(scope, receive, send, most)
        elif body["type"] == "http.disconnect":  # for the log and the metrics: nobody receives it
            await Response(status_code=HTTPStatus.BAD_REQUEST)(scope, receive, send)
        else:
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive, most: int) -> Message | None:
        """Return the body as one message, None if it exceeds ``most`` bytes; ``TimeoutError`` if it is too slow."""
        body = bytearray()
        begun = time.monotonic()
        while True:
            left = begun + self._body_s + len(body) / SLOWEST_BYTES_S - time.monotonic()
            async with asyncio.timeout(max(0.0, left)):
                message = await receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            if len(body) > most:
                return None
            if not message.get("more_body", False):
                return {"type": "http.request", "body": bytes(body), "more_body": False}

    async def _refuse_slow(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = HTTPStatus.REQUEST_TIMEOUT
        detail = f"The request body did not arrive in time: {self._body_s:g} s, or longer for a large body."
        response = problem_response(status, "request-timeout", status.phrase, detail, headers={"Connection": "close"})
        await response(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send, most: int) -> None:
        remedy = "SPECIATE_MAX_BODY_BYTES sets the limit." if most == self._max_bytes else None
        response = error_response(TooLargeError(f"the body exceeds {most} bytes.", remedy=remedy))
        response.headers["Connection"] = "close"

        async def lingering(message: Message) -> None:
            if message["type"] != "http.response.body":
                await send(message)
                return
            await send({**message, "more_body": True})
            # Closing the connection while the client still sends would reset it and lose this response.
            await _discard(receive)
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        await response(scope, receive, lingering)


async def _discard(receive: Receive) -> None:
    try:
        async with asyncio.timeout(LINGER_S):
            while (message := await receive())["type"] == "http.request" and message.get("more_body", False):
                pass
    except TimeoutError:
        pass


def _replay(body: Message, receive: Receive) -> Receive:
    waiting = [body]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
