"""The principal of a request: its identity, scope and project."""

from dataclasses import dataclass
from typing import Annotated, Final, cast
from uuid import UUID

from fastapi import Depends, Request

from speciate.domain.access import Scope
from speciate.domain.errors import ForbiddenError
from speciate.storage.access.tokens import Bearer

PROJECT_HEADER: Final = "speciate-project"
PROJECT_COOKIE: Final = "speciate_project"
SESSION_COOKIE: Final = "speciate_session"


@dataclass(frozen=True, slots=True)
class Principal:
    """Identity of a request."""

    name: str
    scope: Scope
    project_id: UUID
    project: str
    token_id: UUID | None = None
    all_projects: bool = False  # may select any project and administer projects
    session: bool = False  # authenticated by a session cookie

    def require(self, scope: Scope) -> None:
        if not self.scope.includes(scope):
            raise ForbiddenError(f"this request requires scope {scope.value}, the token has {self.scope.value}.")

    def require_all_projects(self) -> None:
        if not self.all_projects:
            raise ForbiddenError("this request affects all projects and requires the operator token.")


def principal_of_bearer(bearer: Bearer, project_id: UUID, project: str, *, session: bool) -> Principal:
    return Principal(bearer.name, bearer.scope, project_id, project, bearer.token_id, bearer.token_id is None, session)


def principal_of(request: Request) -> Principal:
    return cast("Principal", request.state.principal)


async def _principal(request: Request) -> Principal:
    return principal_of(request)


PrincipalDep = Annotated[Principal, Depends(_principal)]


async def _admin(principal: PrincipalDep) -> None:
    principal.require(Scope.ADMIN)


async def _operator(principal: PrincipalDep) -> None:
    principal.require_all_projects()


NeedsAdmin: Final = Depends(_admin)
"""Dependency of routes that require scope ``admin``."""

NeedsOperator: Final = Depends(_operator)
"""Dependency of routes for the operator, or for local programs where no operator token is set."""
