"""Refusals as pages, for whoever asks for pages: the same status, what happened, and a way back."""

from __future__ import annotations

import json
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.dashboard.pages import page
from service.problem_details import MEDIA_TYPE

_MACHINES: Final = ("/v1/", "/healthz", "/readyz", "/metrics")
_INTERNAL: Final = {
    "title": "The service failed",
    "status": 500,
    "detail": "The service failed at this page; its log says why.",
    "errors": [],
}


class ErrorPages:
    """Turns problem details into a page where the request accepts HTML and is not for the REST surface."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, and show what refuses it as a page."""
        if scope["type"] != "http" or scope["path"].startswith(_MACHINES) or not _wants_page(scope):
            await self._app(scope, receive, send)
            return
        answer = _ErrorPageSender(scope, receive, send)
        try:
            await self._app(scope, receive, answer.pass_on)
        except Exception:
            if not answer.begun:
                await answer.show(_INTERNAL, [])
            raise  # whoever serves the application logs it


class _ErrorPageSender:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._held: Message | None = None
        self._body = b""
        self.begun = False

    async def pass_on(self, message: Message) -> None:
        if message["type"] == "http.response.start" and _refuses(message):
            self._held = message
        elif self._held is not None:
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self.show(json.loads(self._body), self._held["headers"])
        else:
            self.begun = True
            await self._send(message)

    async def show(self, details: MutableMapping[str, Any], headers: list[tuple[bytes, bytes]]) -> None:
        self.begun = True
        status = HTTPStatus(details["status"])
        answer = page(Request(self._scope), "error.html", status, details=details)
        kept = {b"retry-after", b"www-authenticate", b"allow", b"connection"}
        answer.raw_headers.extend((name, value) for name, value in headers if name.lower() in kept)
        await answer(self._scope, self._receive, self._send)


def _wants_page(scope: Scope) -> bool:
    return "text/html" in Headers(scope=scope).get("accept", "")


def _refuses(message: Message) -> bool:
    return any(
        name.lower() == b"content-type" and value.startswith(MEDIA_TYPE.encode()) for name, value in message["headers"]
    )
