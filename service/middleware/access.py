"""Who may enter: whoever has a token or a session; without an operator's token, this machine's own programs too.

What was asked for is written down before its answer goes out, if it was no read or its token was refused.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Final, cast
from urllib.parse import quote

from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.dependencies import Parts
from service.doorkeeper import Asked, RefusedTokenError, local
from service.errors import answer
from service.middleware.stream_limit import is_stream
from service.permits import SAFE_METHODS
from service.principal import PROJECT_COOKIE, PROJECT_HEADER, SESSION_COOKIE, Principal
from speciate.domain.access import DEFAULT_PROJECT, TOKEN_PREFIX
from speciate.domain.errors import ForbiddenError, NotAllowedError, SpeciateError
from speciate.domain.scope import Scope as AccessScope
from speciate.loopback import bearer_token, from_own_page, same_token, stranger
from speciate.storage.audit import AuditEntry
from speciate.storage.database import noting_outage

OPEN_PATHS: Final = ("/healthz", "/readyz")
"""What a load balancer may ask without a token."""

METRICS_PATH: Final = "/metrics"

_DOORS: Final = ("/login", "/theme", "/static/")
"""What is needed to log in; forms among them are refused by their routes where they come from elsewhere."""

_LOOK_AGAIN_S: Final = 5.0
"""How long a stream goes on before its sender's token is looked at again."""

_log = logging.getLogger(__name__)


class Access:
    """Lets a request in, or answers 401, 403 or 429.

    Args:
        app: What comes after.
        token: The operator's token; None means open on loopback.
        metrics_token: What reads the metrics, and nothing else.
    """

    def __init__(self, app: ASGIApp, token: str | None, metrics_token: str | None = None) -> None:
        self._app = app
        self._token = token
        self._metrics_token = metrics_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or scope["path"].startswith(_DOORS[2]):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        asked = _asked(scope, headers)
        scope.setdefault("state", {})
        with noting_outage() as scope["state"]["outage"]:
            await self._enter(scope, receive, send, headers, asked)

    async def _enter(self, scope: Scope, receive: Receive, send: Send, headers: Headers, asked: Asked) -> None:
        at_door = scope["path"] in _DOORS
        try:
            principal, again = await self._admit(scope, headers, asked)
        except SpeciateError as error:
            if not at_door:
                await self._refuse(scope, headers, asked, error)(scope, receive, _audited(scope, asked, send, error))
                return
            principal, again = None, None
        scope["state"]["principal"] = principal
        scope["state"]["asked"] = asked
        sending = _audited(scope, asked, send, None)
        if again is None:
            await self._app(scope, receive, sending)
        else:
            await _Watched(self._app, again)(scope, receive, sending)

    async def _admit(
        self, scope: Scope, headers: Headers, asked: Asked
    ) -> tuple[Principal, Callable[[], object] | None]:
        """Return who asks, and what tells later whether they still may."""
        open_here = self._token is None
        if self._metrics_token and scope["path"] == METRICS_PATH and same_token(asked.token or "", self._metrics_token):
            return replace(local(), who="metrics", scope=AccessScope.READ), None
        if asked.token is not None and not (open_here and not asked.token.startswith(TOKEN_PREFIX)):
            keeper = _parts(scope).doorkeeper
            return await to_thread.run_sync(keeper.admit, asked), partial(keeper.look_again, asked)
        if asked.session is not None and not open_here:
            if scope["method"] not in SAFE_METHODS and not from_own_page(headers):
                raise ForbiddenError("the request came with a session, but not from a page of this service.")
            keeper = _parts(scope).doorkeeper
            return await to_thread.run_sync(keeper.admit, asked), partial(keeper.look_again, asked)
        if not open_here:
            raise NotAllowedError(
                "this service asks for a token, and the request had none.",
                remedy="Send it as 'Authorization: Bearer TOKEN'; the CLI and the client read SPECIATE_TOKEN.",
            )
        client = scope.get("client")
        changes = scope["method"] not in SAFE_METHODS
        reason = stranger(client and client[0], headers, "SPECIATE_TOKEN", changes=changes)
        if reason is not None:
            raise ForbiddenError(reason)
        if (asked.project or asked.chosen or DEFAULT_PROJECT) == DEFAULT_PROJECT:
            return local(), None
        return await to_thread.run_sync(_parts(scope).doorkeeper.local, asked), None

    def _refuse(self, scope: Scope, headers: Headers, asked: Asked, error: SpeciateError) -> ASGIApp:
        # Whoever looks at pages is led to the one where they can log in.
        unknown = isinstance(error, NotAllowedError) and not isinstance(error, ForbiddenError)
        wants_page = "text/html" in headers.get("accept", "") and not scope["path"].startswith("/v1/")
        if unknown and wants_page and asked.token is None and scope["method"] == "GET":
            query = scope["query_string"].decode("latin-1")
            here = scope["path"] + (f"?{query}" if query else "")
            return RedirectResponse(f"/login?next={quote(here, safe='')}", HTTPStatus.SEE_OTHER)
        return answer(error)


def _asked(scope: Scope, headers: Headers) -> Asked:
    cookies = cookie_parser(headers.get("cookie", ""))
    client = scope.get("client")
    return Asked(
        token=bearer_token(headers),
        session=cookies.get(SESSION_COOKIE) or None,
        project=headers.get(PROJECT_HEADER),
        chosen=cookies.get(PROJECT_COOKIE) or None,
        address=client[0] if client else "",
    )


def _parts(scope: Scope) -> Parts:
    return cast("Parts", scope["app"].state.parts)


def _audited(scope: Scope, asked: Asked, send: Send, refusal: SpeciateError | None) -> Send:
    """Write an entry before the head of an answer goes out, if the request is one that is written down."""
    if scope["method"] in SAFE_METHODS and not isinstance(refusal, RefusedTokenError):
        return send

    async def first_write(message: Message) -> None:
        if message["type"] == "http.response.start":
            await _write(scope, asked, message)
        await send(message)

    return first_write


async def _write(scope: Scope, asked: Asked, head: Message) -> None:
    principal: Principal | None = scope["state"].get("principal")
    route = getattr(scope.get("route"), "path", scope["path"])
    location = Headers(raw=head["headers"]).get("location")
    things = [f"{name}={value}" for name, value in scope.get("path_params", {}).items()]
    entry = AuditEntry(
        who=principal.who if principal else "nobody",
        token_id=principal.token_id if principal else None,
        project_id=principal.project_id if principal else None,
        action=f"{scope['method']} {route}",
        object=" ".join([*things, *([f"-> {location}"] if location else [])]),
        address=asked.address,
        status=int(head["status"]),
    )
    # Nobody is kept from working, or waiting, by a log: what it cannot take, the process's own has.
    if scope["state"]["outage"].met:
        _log.error("the audit log is not written, since the database is away: %s", entry)
        return
    try:
        await to_thread.run_sync(_parts(scope).stores.audit.write, entry)
    except (SpeciateError, SQLAlchemyError, AttributeError) as error:
        _log.error("the audit log cannot be written: %s: %s", error, entry)


class _RevokedError(OSError):
    """The sender of a stream may no longer read it."""


@dataclass
class _Watched:
    """Ends an answer that goes on for long when whoever asked is let in no more."""

    app: ASGIApp
    again: Callable[[], object]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        looked, revoked, events = time.monotonic(), False, False

        async def watched(message: Message) -> None:
            nonlocal looked, revoked, events
            if message["type"] == "http.response.start":
                events = is_stream(message)
            if message.get("more_body") and time.monotonic() - looked > _LOOK_AGAIN_S:
                looked = time.monotonic()
                try:
                    await to_thread.run_sync(self.again)
                except NotAllowedError:
                    revoked = True
                    if events:  # without an end; anything else would be taken for the whole, and breaks off
                        await send({"type": "http.response.body", "body": b"", "more_body": False})
                    raise _RevokedError from None
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception:
            if not revoked:
                raise
