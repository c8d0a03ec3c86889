"""Access control: authenticate each request by token, session cookie or loopback address, and audit it."""

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

from service.authentication import Credentials, InvalidTokenError, local_principal
from service.dependencies import SAFE_METHODS, AppState
from service.errors import error_response
from service.middleware.stream_limit import is_stream
from service.principal import PROJECT_COOKIE, PROJECT_HEADER, SESSION_COOKIE, Principal
from speciate.domain.access import DEFAULT_PROJECT, TOKEN_PREFIX
from speciate.domain.access import Scope as AccessScope
from speciate.domain.errors import ForbiddenError, NotAllowedError, SpeciateError, UnavailableError
from speciate.loopback import bearer_token, from_own_page, refusal_reason, same_token
from speciate.storage.access.audit import AuditEntry

OPEN_PATHS: Final = ("/healthz", "/readyz", "/v1/schemas/problem.json")
"""Paths that load balancers and editors read without a token."""

METRICS_PATH: Final = "/metrics"

LOGIN_PATHS: Final = ("/login", "/theme")
"""Pages that work without authentication. Their forms reject cross-site requests themselves."""

_STATIC: Final = "/static/"
_REVALIDATE_S: Final = 5.0
"""Seconds between two checks of the credentials behind an open stream."""

Revalidation = Callable[[], object]


class AccessControl:
    """Authenticate requests; respond 401, 403 or 429 to those that fail."""

    def __init__(self, app: ASGIApp, token: str | None, metrics_token: str | None = None) -> None:
        self._app = app
        self._token = token
        self._metrics_token = metrics_token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in OPEN_PATHS or scope["path"].startswith(_STATIC):
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        credentials = _credentials_of(scope, headers)
        scope.setdefault("state", {})
        principal: Principal | None = None
        revalidate: Revalidation | None = None
        try:
            principal, revalidate = await self._authenticate(scope, headers, credentials)
        except SpeciateError as error:
            if scope["path"] not in LOGIN_PATHS:
                response = _refusal(scope, headers, credentials, error)
                await response(scope, receive, audited(scope, credentials, send, error))
                return
        scope["state"]["principal"] = principal
        scope["state"]["credentials"] = credentials
        app = self._app if revalidate is None else _Revalidated(self._app, revalidate)
        await app(scope, receive, audited(scope, credentials, send, None))

    async def _authenticate(
        self, scope: Scope, headers: Headers, credentials: Credentials
    ) -> tuple[Principal, Revalidation | None]:
        """Return the principal and, for tokens and sessions, a function that checks them again."""
        token = credentials.token
        if scope["path"] == METRICS_PATH and self._metrics_token and same_token(token or "", self._metrics_token):
            return replace(local_principal(), name="metrics", scope=AccessScope.READ), None
        if self._token is None and (token is None or not token.startswith(TOKEN_PREFIX)):
            return await _authenticate_local(scope, headers, credentials), None
        if token is None:
            _require_session(scope, headers, credentials)
        authenticator = _app_state(scope).authenticator
        principal = await to_thread.run_sync(authenticator.authenticate, credentials)
        return principal, partial(authenticator.revalidate, credentials)


def _require_session(scope: Scope, headers: Headers, credentials: Credentials) -> None:
    if credentials.session is None:
        raise NotAllowedError(
            "this service requires a token, and the request has none.",
            remedy="Send 'Authorization: Bearer TOKEN'. The CLI and the client read it from SPECIATE_TOKEN.",
        )
    if scope["method"] not in SAFE_METHODS and not from_own_page(headers):
        raise ForbiddenError("the request has a session cookie but does not come from a page of this service.")


async def _authenticate_local(scope: Scope, headers: Headers, credentials: Credentials) -> Principal:
    client = scope.get("client")
    changes = scope["method"] not in SAFE_METHODS
    reason = refusal_reason(client and client[0], headers, "SPECIATE_TOKEN", changes=changes)
    if reason is not None:
        raise ForbiddenError(reason)
    if (credentials.project or credentials.project_cookie or DEFAULT_PROJECT) == DEFAULT_PROJECT:
        return local_principal()
    return await to_thread.run_sync(_app_state(scope).authenticator.authenticate_local, credentials)


def _refusal(scope: Scope, headers: Headers, credentials: Credentials, error: SpeciateError) -> ASGIApp:
    unauthenticated = isinstance(error, NotAllowedError) and not isinstance(error, ForbiddenError)
    wants_page = "text/html" in headers.get("accept", "") and not scope["path"].startswith("/v1/")
    if unauthenticated and wants_page and credentials.token is None and scope["method"] == "GET":
        query = scope["query_string"].decode("latin-1")
        here = scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"/login?next={quote(here, safe='')}", HTTPStatus.SEE_OTHER)
    return error_response(error)


def _credentials_of(scope: Scope, headers: Headers) -> Credentials:
    cookies = cookie_parser(headers.get("cookie", ""))
    client = scope.get("client")
    return Credentials(
        token=bearer_token(headers),
        session=cookies.get(SESSION_COOKIE) or None,
        project=headers.get(PROJECT_HEADER),
        project_cookie=cookies.get(PROJECT_COOKIE) or None,
        address=client[0] if client else "",
    )


def _app_state(scope: Scope) -> AppState:
    return cast("AppState", scope["app"].state.app_state)


class _RevokedError(OSError):
    """The credentials behind a stream are no longer valid."""


@dataclass
class _Revalidated:
    """End a streaming response when its credentials become invalid."""

    app: ASGIApp
    revalidate: Revalidation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        checked_at, revoked, events = time.monotonic(), False, False

        async def checked(message: Message) -> None:
            nonlocal checked_at, revoked, events
            if message["type"] == "http.response.start":
                events = is_stream(message)
            if message.get("more_body") and time.monotonic() - checked_at > _REVALIDATE_S:
                checked_at = time.monotonic()
                try:
                    await to_thread.run_sync(self.revalidate)
                except NotAllowedError:
                    revoked = True
                    # An event stream ends without an `end` event. Any other response breaks off, because a regular
                    # end would make it look complete.
                    if events:
                        await send({"type": "http.response.body", "body": b"", "more_body": False})
                    raise _RevokedError from None
                except UnavailableError:  # asked again with a later chunk
                    pass
            await send(message)

        try:
            await self.app(scope, receive, checked)
        except Exception:
            if not revoked:
                raise


_log = logging.getLogger(__name__)


def audited(scope: Scope, credentials: Credentials, send: Send, refusal: SpeciateError | None) -> Send:
    """Return a ``send`` that writes the audit entry first, or ``send`` itself if the request needs no entry."""
    if scope["method"] in SAFE_METHODS and not isinstance(refusal, InvalidTokenError):
        return send

    async def write_first(message: Message) -> None:
        if message["type"] == "http.response.start":
            await _write(scope, _entry(scope, credentials, message))
        await send(message)

    return write_first


def _entry(scope: Scope, credentials: Credentials, head: Message) -> AuditEntry:
    principal: Principal | None = scope["state"].get("principal")
    route = getattr(scope.get("route"), "path", scope["path"])
    location = Headers(raw=head["headers"]).get("location")
    objects = [f"{name}={value}" for name, value in scope.get("path_params", {}).items()]
    return AuditEntry(
        principal=principal.name if principal else "anonymous",
        token_id=principal.token_id if principal else None,
        project_id=principal.project_id if principal else None,
        action=f"{scope['method']} {route}",
        object=" ".join([*objects, *([f"-> {location.partition('?')[0]}"] if location else [])]),
        address=credentials.address,
        status=int(head["status"]),
    )


async def _write(scope: Scope, entry: AuditEntry) -> None:
    def write() -> None:
        # Anyone can send requests without a valid token: only some of each address are written.
        if entry.principal != "anonymous" or not state.authenticator.failures.wait_s(f"audit:{entry.address}"):
            state.stores.audit.write(entry)

    # A failing audit log must not block or delay requests: entries it cannot store go to the process log.
    try:
        state = _app_state(scope)
        await to_thread.run_sync(write)
    except (SpeciateError, SQLAlchemyError, AttributeError) as error:
        _log.error("audit entry not stored: %s: %s", error, entry)
