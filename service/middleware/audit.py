"""Write the audit log: one entry per changing request and per rejected token, before the response begins."""

from __future__ import annotations

import logging
from typing import cast

from anyio import to_thread
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.types import Message, Scope, Send

from service.authentication import Credentials, InvalidTokenError
from service.dependencies import SAFE_METHODS, AppState
from service.principal import Principal
from speciate.domain.errors import SpeciateError
from speciate.storage.access.audit import AuditEntry

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
        object=" ".join([*objects, *([f"-> {location}"] if location else [])]),
        address=credentials.address,
        status=int(head["status"]),
    )


async def _write(scope: Scope, entry: AuditEntry) -> None:
    # A failing audit log must not block or delay requests: entries it cannot store go to the process log.
    try:
        app_state = cast("AppState", scope["app"].state.app_state)
        await to_thread.run_sync(app_state.stores.audit.write, entry)
    except (SpeciateError, SQLAlchemyError, AttributeError) as error:
        _log.error("audit entry not stored: %s: %s", error, entry)
