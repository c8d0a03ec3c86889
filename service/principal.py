"""Who asks: whoever a token, a session or this machine itself stands for, and the project that is asked about."""

from __future__ import annotations

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
    """Who asks.

    Attributes:
        name: Name in the audit log.
        scope: What they may do.
        project_id: The project that they ask about.
        project: Its name.
        token_id: Their token, where there is one.
        all_projects: Whether they may choose the project, and make and limit projects.
        session: Whether they are known by a cookie.
    """

    name: str
    scope: Scope
    project_id: UUID
    project: str
    token_id: UUID | None = None
    all_projects: bool = False
    session: bool = False

    def require(self, scope: Scope) -> None:
        """Refuse what needs another scope; raises ``ForbiddenError``."""
        if not self.scope.includes(scope):
            raise ForbiddenError(f"this needs a token with scope {scope.value}, and yours has {self.scope.value}.")

    def require_all_projects(self) -> None:
        """Refuse what only the operator does; raises ``ForbiddenError``."""
        if not self.all_projects:
            raise ForbiddenError("this is for the operator's token alone: it concerns all projects.")


def of_bearer(bearer: Bearer, project_id: UUID, project: str, *, session: bool) -> Principal:
    """Return who asks by a token or session about a project."""
    return Principal(bearer.name, bearer.scope, project_id, project, bearer.token_id, bearer.token_id is None, session)


def principal_of(request: Request) -> Principal:
    """Return who sent a request that was let in."""
    return cast("Principal", request.state.principal)


async def _principal(request: Request) -> Principal:
    return principal_of(request)


PrincipalDep = Annotated[Principal, Depends(_principal)]


async def _admin(principal: PrincipalDep) -> None:
    principal.require(Scope.ADMIN)


async def _operator(principal: PrincipalDep) -> None:
    principal.require_all_projects()


NeedsAdmin: Final = Depends(_admin)
"""For what is for scope ``admin``."""

NeedsOperator: Final = Depends(_operator)
"""For what is for the operator alone, or for programs of this machine where there is none."""
