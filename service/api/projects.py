"""Projects and their quotas: the operator makes and limits them, their own people see them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import Field

from service.api.schemas import NameInPath
from service.dependencies import Cursor, Limit, StoresDep
from service.principal import NeedsOperator, PrincipalDep
from service.strict_json import StrictRoute
from speciate.domain.access import Quota
from speciate.domain.errors import NotFoundError
from speciate.domain.values import Slug, Value
from speciate.ports.records.base import Page
from speciate.ports.records.projects import ProjectRecord, ProjectUsage

router = APIRouter(prefix="/v1/projects", tags=["access"], route_class=StrictRoute)


class ProjectRequest(Value):
    """A project to make.

    Attributes:
        slug: Its name; it can never be used again.
        title: One line for people.
        quota: What it may use.
    """

    slug: Slug
    title: Annotated[str, Field(max_length=200)] = ""
    quota: Quota = Quota()


@router.get("")
def list_projects(
    stores: StoresDep, principal: PrincipalDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[ProjectRecord]:
    """List the projects that you may choose, the oldest first."""
    only = None if principal.all_projects else principal.project_id
    return stores.projects.list(only=only, limit=limit, cursor=cursor)


@router.post("", status_code=201, dependencies=[NeedsOperator])
def create_project(body: ProjectRequest, stores: StoresDep, response: Response) -> ProjectRecord:
    """Make a project; only the operator's token does."""
    made = stores.projects.create(body.slug, body.title, body.quota)
    response.headers["Location"] = f"/v1/projects/{made.slug}"
    return made


@router.post("/{name}:quota", dependencies=[NeedsOperator])
def set_quota(name: NameInPath, body: Quota, stores: StoresDep) -> ProjectRecord:
    """Set the limits that are named, null being none; only the operator's token does. What has begun goes on."""
    return stores.projects.limit(name, body)


@router.get("/{name}")
def get_project(name: NameInPath, stores: StoresDep, principal: PrincipalDep) -> ProjectUsage:
    """Read a project by name, with what counts towards its quotas."""
    if not principal.all_projects and name != principal.project:
        raise NotFoundError(f"there is no project {name!r}.")
    return stores.projects.usage(name)
