"""How large a request may be, whether it says so in advance or not, and how slowly it may come."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import answer
from service.problem_details import problem
from speciate.domain.errors import TooLargeError

BODY_S: Final = 20.0
"""Seconds in which a small body has to be there."""

SLOWEST_BYTES_S: Final = 32 << 10
"""Bytes that earn a larger body one more second."""


LINGER_S: Final = 1.0
"""Seconds for which a body that was refused is still taken off the wire."""


class BodyLimit:
    """Reads each body before anything else does, and answers 413 when it is over the limit, 408 when it is too slow.

    Args:
        app: What comes after.
        max_bytes: Largest body.
        body_s: Seconds in which a small body has to be there.
    """

    def __init__(self, app: ASGIApp, max_bytes: int, body_s: float = BODY_S) -> None:
        self._app = app
        self._body_s = body_s
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its body read, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        try:
            body = None if declared.isdecimal() and int(declared) > self._max_bytes else await self._read(receive)
        except TimeoutError:
            await self._refuse_slow(scope, receive, send)
            return
        if body is None:
            await self._refuse(scope, receive, send)
        else:
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> Message | None:
        """Return the body as one message, or None when it is too large; memory holds at most the limit.

        Raises:
            TimeoutError: It comes too slowly.
        """
        body = bytearray()
        begun = time.monotonic()
        while True:
            left = begun + self._body_s + len(body) / SLOWEST_BYTES_S - time.monotonic()
            async with asyncio.timeout(max(0.0, left)):
                message = await receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                return None
            if not message.get("more_body", False):
                return {"type": "http.request", "body": bytes(body), "more_body": False}

    async def _refuse_slow(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = HTTPStatus.REQUEST_TIMEOUT
        told = f"The body of the request came too slowly: {self._body_s:g} s are allowed, more for a large one."
        response = problem(status, "request-timeout", status.phrase, told, headers={"Connection": "close"})
        await response(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = TooLargeError(f"the body is over {self._max_bytes} bytes.", remedy="SPECIATE_MAX_BODY_BYTES sets this.")
        response = answer(error)
        response.headers["Connection"] = "close"

        async def lingering(message: Message) -> None:
            if message["type"] != "http.response.body":
                await send(message)
                return
            await send({**message, "more_body": True})
            # Closed at once, with a body still on its way, the connection would be reset and this answer lost.
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
