"""Who may enter the embedded server, and with how large a body; the rules are those of the service.

Without a token programs of this machine may, under a loopback name and not from a page of another origin.
"""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from speciate.policies.embedded_server.wire import refusal
from speciate.settings import is_loopback

MAX_BODY_BYTES: Final = 8 << 20


class Access:
    """Lets a request in, or answers 401, 403, 411 or 413.

    Args:
        app: What comes after.
        token: What ``Authorization: Bearer`` has to hold; None means open on loopback.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        answer = self._answer(scope, Headers(scope=scope)) if scope["type"] == "http" else None
        await (self._app if answer is None else answer)(scope, receive, send)

    def _answer(self, scope: Scope, headers: Headers) -> Response | None:
        if scope["path"] == "/health":
            return None
        if self._token is not None:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            # Compared in constant time, so that the answer's delay says nothing about the token.
            if scheme.lower() != "bearer" or not secrets.compare_digest(given.strip().encode(), self._token):
                message = "this server asks for a token: send it as 'Authorization: Bearer TOKEN'."
                return refusal(HTTPStatus.UNAUTHORIZED, message, headers={"WWW-Authenticate": "Bearer"})
        elif (reason := _stranger(scope, headers)) is not None:
            return refusal(HTTPStatus.FORBIDDEN, reason)
        return _too_large(scope, headers)


def _stranger(scope: Scope, headers: Headers) -> str | None:
    """Return why a request does not come from a program of this machine, or None."""
    client, host = scope.get("client"), headers.get("host", "")
    name = host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
    if client is not None and not is_loopback(client[0]):
        return "Without a token this server answers its own machine only: set SPECIATE_SERVE_TOKEN to open it."
    if not is_loopback(name):
        return "Without a token this server answers under the name localhost only: set SPECIATE_SERVE_TOKEN to open it."
    origin = headers.get("origin")
    if origin is not None and origin not in {f"http://{host}", f"https://{host}"}:
        return "The request was sent by a page of another origin."
    return None


def _too_large(scope: Scope, headers: Headers) -> Response | None:
    if scope["method"] != "POST":
        return None
    declared = headers.get("content-length", "")
    closing = {"Connection": "close"}  # what else is on its way is not read
    if not declared.isdecimal():
        return refusal(HTTPStatus.LENGTH_REQUIRED, "the request has no Content-Length.", headers=closing)
    if int(declared) > MAX_BODY_BYTES:
        message = f"the body is over {MAX_BODY_BYTES} bytes."
        return refusal(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, message, headers=closing)
    return None
