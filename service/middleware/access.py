"""Who may enter: whoever has the token; without a token, this machine's own programs and nobody else.

Without a token a web page in a browser on this machine is the remaining danger: it may send requests to loopback under
a name of its own (DNS rebinding) or blindly from its own origin. Both are refused by what browsers say of themselves.
"""

from __future__ import annotations

import secrets
from http import HTTPStatus
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from service.errors import answer
from service.problem_details import problem
from speciate.domain.errors import NotAllowedError
from speciate.settings import is_loopback

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""What a load balancer may ask without a token."""

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Access:
    """Lets a request in or answers 401 or 403.

    Args:
        app: What comes after.
        token: What ``Authorization: Bearer`` has to hold; None means open on loopback.
    """

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        if self._token is not None:
            refusal = None if self._bears_token(headers) else _unauthorized()
        else:
            reason = _stranger(scope, headers)
            refusal = None if reason is None else problem(HTTPStatus.FORBIDDEN, "forbidden", "Not allowed", reason)
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _bears_token(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Compared in constant time, so that the answer's delay says nothing about the token.
        return scheme.lower() == "bearer" and secrets.compare_digest(given.strip().encode(), self._token or b"")


def _unauthorized() -> ASGIApp:
    return answer(
        NotAllowedError(
            "this service asks for a token, and the request had none or another one.",
            remedy="Send it as 'Authorization: Bearer TOKEN'; the CLI and the client read SPECIATE_TOKEN.",
        )
    )


def _stranger(scope: Scope, headers: Headers) -> str | None:
    """Return why a request to an open service does not come from a program of this machine, or None."""
    client = scope.get("client")
    if client is not None and not is_loopback(client[0]):
        return "Without a token this service answers its own machine only: set SPECIATE_TOKEN to open it."
    if not is_loopback(_host_name(headers.get("host", ""))):
        return "Without a token this service answers under the name localhost only: set SPECIATE_TOKEN to open it."
    origin = headers.get("origin")
    own = {f"{scheme}://{headers.get('host')}" for scheme in ("http", "https")}
    if scope["method"] not in _SAFE_METHODS and origin is not None and origin not in own:
        return "The request was sent by a page of another origin."
    return None


def _host_name(host: str) -> str:
    return host[: host.find("]") + 1] if host.startswith("[") else host.partition(":")[0]
