"""Tokens of a project: making, listing and revoking them, and who one is."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Response
from pydantic import AwareDatetime, Field, StringConstraints

from service.dependencies import Cursor, Limit, StoresDep
from service.principal import NeedsAdmin, PrincipalDep
from service.strict_json import StrictRoute
from speciate.domain.access import Scope
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.values import ONE_LINE, Value
from speciate.ports.records.base import Page
from speciate.ports.records.projects import NewToken, PrincipalRecord, TokenRecord

router = APIRouter(prefix="/v1", tags=["access"], route_class=StrictRoute)

TokenId = Annotated[UUID, Path(description="id of the token; 422 when it is no UUID")]


class TokenRequest(Value):
    """A token to make.

    Attributes:
        name: Whose it is, or what for.
        scope: What it may do.
        expires_at: When it ends; without it never.
    """

    name: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=ONE_LINE)]
    scope: Scope = Scope.READ
    expires_at: AwareDatetime | None = Field(default=None, description="with an offset, such as 2030-01-31T00:00:00Z")


@router.get("/whoami")
async def whoami(principal: PrincipalDep) -> PrincipalRecord:
    """Say whom the service takes you for."""
    return PrincipalRecord(
        name=principal.name, project=principal.project, scope=principal.scope, all_projects=principal.all_projects
    )


@router.get("/tokens", dependencies=[NeedsAdmin])
def list_tokens(
    stores: StoresDep, principal: PrincipalDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[TokenRecord]:
    """List the project's tokens, newest first, revoked ones too."""
    return stores.tokens.list(principal.project_id, limit=limit, cursor=cursor)


@router.post("/tokens", status_code=201, dependencies=[NeedsAdmin])
def create_token(body: TokenRequest, stores: StoresDep, principal: PrincipalDep, response: Response) -> NewToken:
    """Make a token of the project. The answer is the only place where it can be read."""
    require_future(body.expires_at)
    made = stores.tokens.create(
        principal.project_id, body.name, body.scope, created_by=principal.name, expires_at=body.expires_at
    )
    response.headers["Location"] = f"/v1/tokens/{made.id}"
    return made


@router.post("/tokens/{token_id}:revoke", dependencies=[NeedsAdmin])
def revoke_token(token_id: TokenId, stores: StoresDep, principal: PrincipalDep) -> TokenRecord:
    """Revoke a token: the next request with it is refused, at every replica, and what streams to it ends in seconds."""
    return stores.tokens.revoke(principal.project_id, token_id)


def require_future(expires_at: datetime | None) -> None:
    """Refuse an end that has passed; raises ``InvalidInputError``."""
    if expires_at is not None and expires_at <= datetime.now(UTC):
        flaw = FieldError("has passed already: expected a time to come", where="expires_at")
        raise InvalidInputError(f"The token is not valid: {flaw}", flaws=(flaw,))
