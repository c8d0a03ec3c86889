"""Sending clients elsewhere: a process that is about to stop closes each connection with its answer."""

from __future__ import annotations

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send


class Leaving:
    """Answers with ``Connection: close`` once the application is leaving, so that no client asks again here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http" or not scope["app"].state.leaving.is_set():
            await self._app(scope, receive, send)
            return

        async def close(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        await self._app(scope, receive, close)
