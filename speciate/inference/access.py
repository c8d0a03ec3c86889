"""Admit requests to the inference server by token or loopback address, and limit the size of their bodies.

Without a token the server admits requests of this machine under a loopback name, and none from a page of another
origin. The rules are those of the service.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from speciate.inference.protocol import error_response
from speciate.loopback import bearer_token, refusal_reason, same_token

MAX_BODY_BYTES: Final = 8 << 20


class AccessMiddleware:
    """Middleware that passes a request on, or answers 401, 403, 411 or 413; without a token it admits loopback only."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self._refusal(scope, Headers(scope=scope)) if scope["type"] == "http" else None
        await (self._app if refused is None else refused)(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Response | None:
        if scope["path"] == "/health":
            return None
        client = scope.get("client")
        if self._token is not None:
            if not same_token(bearer_token(headers), self._token):
                message = "this server requires a token: send it as 'Authorization: Bearer TOKEN'."
                return error_response(HTTPStatus.UNAUTHORIZED, message, headers={"WWW-Authenticate": "Bearer"})
        elif (
            reason := refusal_reason(client and client[0], headers, "SPECIATE_SERVE_TOKEN", changes=True)
        ) is not None:
            return error_response(HTTPStatus.FORBIDDEN, reason)
        if scope["method"] != "POST":
            return None
        declared = headers.get("content-length", "")
        closing = {"Connection": "close"}  # the rest of the body is not read
        if not declared.isdecimal():
            return error_response(HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length.", headers=closing)
        if int(declared) <= MAX_BODY_BYTES:
            return None
        message = f"the body is over {MAX_BODY_BYTES} bytes."
        return error_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, headers=closing)
