"""How large a request may be, whether it says so in advance or not."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.errors import answer
from speciate.domain.errors import TooLargeError


class BodyLimit:
    """Reads each body before anything else does, and answers 413 when it is over the limit.

    Args:
        app: What comes after.
        max_bytes: Largest body.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on with its body read, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        body = None if declared.isdecimal() and int(declared) > self._max_bytes else await self._read(receive)
        if body is None:
            await self._refuse(scope, receive, send)
        else:
            await self._app(scope, _replay(body, receive), send)

    async def _read(self, receive: Receive) -> Message | None:
        """Return the body as one message, or None when it is too large; memory holds at most the limit."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return message
            body += message.get("body", b"")
            if len(body) > self._max_bytes:
                return None
            if not message.get("more_body", False):
                return {"type": "http.request", "body": bytes(body), "more_body": False}

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        error = TooLargeError(f"the body is over {self._max_bytes} bytes.", remedy="SPECIATE_MAX_BODY_BYTES sets this.")
        response = answer(error)
        # Whatever else is on its way is not read: the connection ends with this answer.
        response.headers["Connection"] = "close"
        await response(scope, receive, send)


def _replay(body: Message, receive: Receive) -> Receive:
    waiting = [body]

    async def again() -> Message:
        return waiting.pop() if waiting else await receive()

    return again
