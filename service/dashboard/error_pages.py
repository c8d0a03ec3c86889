"""Render problem details as a page for clients that accept HTML, with the same status."""

import json
from collections.abc import MutableMapping
from http import HTTPStatus
from typing import Any, Final

from fastapi import Request
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.dashboard.pages import page
from service.problem_details import PROBLEM_JSON

_API_PATHS: Final = ("/v1/", "/healthz", "/readyz", "/metrics")
_KEPT_HEADERS: Final = frozenset({b"retry-after", b"www-authenticate", b"allow", b"connection"})
_INTERNAL: Final = {
    "title": "Internal error",
    "status": 500,
    "detail": "The service failed to render this page; its log has the reason.",
    "errors": [],
}


class ErrorPages:
    """Middleware that replaces problem details by a page, except on API paths."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        html = scope["type"] == "http" and "text/html" in Headers(scope=scope).get("accept", "")
        if not html or scope["path"].startswith(_API_PATHS):
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body, started = b"", False

        async def send_page(details: MutableMapping[str, Any], headers: list[tuple[bytes, bytes]]) -> None:
            response = page(Request(scope), "error.html", HTTPStatus(details["status"]), details=details)
            response.raw_headers.extend((name, value) for name, value in headers if name.lower() in _KEPT_HEADERS)
            await response(scope, receive, send)

        async def forward(message: Message) -> None:
            nonlocal start, body, started
            kind = Headers(raw=message.get("headers", [])).get("content-type", "")
            if message["type"] == "http.response.start" and kind.startswith(PROBLEM_JSON):
                start = message
            elif start is not None:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    started = True
                    await send_page(json.loads(body), start["headers"])
            else:
                started = True
                await send(message)

        try:
            await self._app(scope, receive, forward)
        except Exception:
            if not started:
                await send_page(_INTERNAL, [])
            raise  # the server logs it
