"""Add the routes that archive, delete and restore the objects of a resource."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from speciate.domain.visibility import Visibility, VisibilityChange

VisibilityFilter = Annotated[Visibility, Query(description="List visible, archived or deleted objects, or all.")]
_DESCRIPTIONS: Final = {
    VisibilityChange.ARCHIVE: "Archive {}. Lists hide it and new work cannot use it; records still count it.",
    VisibilityChange.DELETE: "Delete {}. It counts nowhere, and can be restored until it is purged.",
    VisibilityChange.RESTORE: "Restore {}: undo the deletion, else the archiving.",
}


def add_visibility_routes(
    router: APIRouter, path: str, kind: str, objects: str, make: Callable[[VisibilityChange], Callable[..., Any]]
) -> None:
    """Add ``POST path:archive``, ``DELETE path`` and ``POST path:restore``.

    Args:
        router: Router of the resource.
        path: Path of an object below the router.
        kind: Kind of the objects, for the names of the operations.
        objects: What a request changes, for the descriptions.
        make: Returns the endpoint of a change; its return annotation is the response.
    """
    for change in VisibilityChange:
        deletes = change is VisibilityChange.DELETE
        router.add_api_route(
            path if deletes else f"{path}:{change.value}",
            make(change),
            methods=["DELETE" if deletes else "POST"],
            name=f"{change.value}_{kind}",
            description=_DESCRIPTIONS[change].format(objects),
        )
