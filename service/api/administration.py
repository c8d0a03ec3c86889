"""Routes for administration: tokens, projects with their quotas, and the audit log."""

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Path, Query, Response
from pydantic import AwareDatetime, Field, StringConstraints

from service.api.schemas import NameInPath
from service.dependencies import Cursor, Limit, StoresDep
from service.principal import NeedsAdmin, NeedsOperator, PrincipalDep
from service.strict_json import StrictRoute
from speciate.domain.access import Quota, Scope
from speciate.domain.errors import NotFoundError, invalid_field
from speciate.domain.values import ONE_LINE, Slug, Value
from speciate.schema.base import Page
from speciate.schema.projects import AuditRecord, NewToken, PrincipalRecord, ProjectRecord, ProjectUsage, TokenRecord
from speciate.storage.stores import Stores

router = APIRouter(prefix="/v1", tags=["access"], route_class=StrictRoute)

TokenId = Annotated[UUID, Path(description="Id of the token. A malformed id gives 422.")]


class TokenRequest(Value):
    name: Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=ONE_LINE)]
    """Owner or purpose of the token."""
    scope: Scope = Scope.READ
    """What the token may do."""
    expires_at: AwareDatetime | None = None
    """Expiry with an offset, such as 2030-01-31T00:00:00Z. Without it the token does not expire."""


class ProjectRequest(Value):
    slug: Slug
    """Name of the project. It can never be used again."""
    title: Annotated[str, Field(max_length=200)] = ""
    """One line for people."""
    quota: Quota = Quota()


@router.get("/whoami")
async def whoami(principal: PrincipalDep) -> PrincipalRecord:
    """Return the identity, project and scope of your credentials."""
    return PrincipalRecord(
        name=principal.name, project=principal.project, scope=principal.scope, all_projects=principal.all_projects
    )


@router.get("/tokens", dependencies=[NeedsAdmin])
def list_tokens(
    stores: StoresDep, principal: PrincipalDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[TokenRecord]:
    """List the tokens of the project, newest first, including revoked ones."""
    return stores.tokens.list(principal.project_id, limit=limit, cursor=cursor)


@router.post("/tokens", status_code=201, dependencies=[NeedsAdmin])
def create_token(body: TokenRequest, stores: StoresDep, principal: PrincipalDep, response: Response) -> NewToken:
    """Create a token for the project. Its secret appears only in this response."""
    if body.expires_at is not None and body.expires_at <= datetime.now(UTC):
        raise invalid_field("The token", "expires_at", "is in the past: expected a future time")
    created = stores.tokens.create(
        principal.project_id, body.name, body.scope, created_by=principal.name, expires_at=body.expires_at
    )
    response.headers["Location"] = f"/v1/tokens/{created.id}"
    return created


@router.post("/tokens/{token_id}:revoke", dependencies=[NeedsAdmin])
def revoke_token(token_id: TokenId, stores: StoresDep, principal: PrincipalDep) -> TokenRecord:
    """Revoke a token. Every replica rejects its next request, and its open streams end within seconds."""
    return stores.tokens.revoke(principal.project_id, token_id)


@router.get("/projects")
def list_projects(
    stores: StoresDep, principal: PrincipalDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[ProjectRecord]:
    """List the projects that you may select, oldest first."""
    only = None if principal.all_projects else principal.project_id
    return stores.projects.list(only=only, limit=limit, cursor=cursor)


@router.post("/projects", status_code=201, dependencies=[NeedsOperator])
def create_project(body: ProjectRequest, stores: StoresDep, response: Response) -> ProjectRecord:
    """Create a project. Requires the operator token."""
    created = add_project(body, stores)
    response.headers["Location"] = f"/v1/projects/{created.slug}"
    return created


def add_project(body: ProjectRequest, stores: Stores) -> ProjectRecord:
    """Create a project as a request or a form describes it, with the built-in policies."""
    created = stores.projects.create(body.slug, body.title, body.quota)
    stores.within(created.id).catalog.add_built_in()
    return created


@router.post("/projects/{name}:quota", dependencies=[NeedsOperator])
def set_quota(name: NameInPath, body: Quota, stores: StoresDep) -> ProjectRecord:
    """Set the given limits of a project; null removes a limit. Requires the operator token. Running runs continue."""
    return stores.projects.limit(name, body)


@router.get("/projects/{name}")
def get_project(name: NameInPath, stores: StoresDep, principal: PrincipalDep) -> ProjectUsage:
    """Return a project with its usage against its quotas."""
    if not principal.all_projects and name != principal.project:
        raise NotFoundError(f"there is no project {name!r}.")
    return stores.projects.usage(name)


@router.get("/audit", dependencies=[NeedsAdmin])
def list_audit(
    stores: StoresDep,
    principal: PrincipalDep,
    everything: Annotated[
        bool, Query(description="Include all projects and rejected tokens. Requires the operator token.")
    ] = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[AuditRecord]:
    """List the changing requests of the project, newest first."""
    if everything:
        principal.require_all_projects()
    return stores.audit.list(project=None if everything else principal.project_id, limit=limit, cursor=cursor)
