"""What every route but a few open ones depends on: that its sender may do this, with the things of their own project.

A route is handed stores of one project and finds names, and ids of what has a name, in them alone. What is left are the
ids of runs and of what runs have made: whoever names one of another project in a path is told that there is none.
"""

from __future__ import annotations

from typing import Final
from uuid import UUID

from anyio import to_thread
from fastapi import Request

from service.dependencies import parts_of
from service.owners import OWNED
from service.principal import principal_of
from speciate.domain.errors import NotFoundError
from speciate.domain.scope import Scope

SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


async def permit(request: Request) -> None:
    """Let a request go on.

    Raises:
        ForbiddenError: The token's scope does not allow it.
        NotFoundError: A thing in its path is of another project, or is not there.
    """
    principal = principal_of(request)
    principal.require(Scope.READ if request.method in SAFE_METHODS else Scope.SUBMIT)
    for parameter, (what, _) in OWNED.items():
        text = request.path_params.get(parameter)
        found = None if text is None else _uuid(str(text))
        if found is None:  # whatever is no id is refused by the route
            continue
        owners = parts_of(request).owners
        project = owners.known(found)
        if project is None:
            project = await to_thread.run_sync(owners.find, parameter, found)
        if project != principal.project_id:
            raise NotFoundError(f"there is no {what} {found}.")


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
