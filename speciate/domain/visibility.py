"""Archive, delete and restore runs, problems and policies: the verbs, the list filter and the refusals."""

from enum import StrEnum
from typing import Protocol

from speciate.domain.errors import ConflictError


class Visibility(StrEnum):
    """List filter. ``all`` includes archived and deleted objects."""

    VISIBLE = "visible"
    ARCHIVED = "archived"
    DELETED = "deleted"
    ALL = "all"


class VisibilityChange(StrEnum):
    """A change of visibility. ``restore`` undoes the last of the other two."""

    ARCHIVE = "archive"
    DELETE = "delete"
    RESTORE = "restore"

    @property
    def past(self) -> str:
        """Past participle, for messages."""
        return f"{self.value.removesuffix('e')}ed"


class Hideable(Protocol):
    """An object that can be archived and deleted."""

    @property
    def archived_at(self) -> object | None: ...

    @property
    def deleted_at(self) -> object | None: ...


def visibility_of(item: Hideable) -> Visibility:
    """Return the state of an object: visible, archived or deleted."""
    if item.deleted_at is not None:
        return Visibility.DELETED
    return Visibility.VISIBLE if item.archived_at is None else Visibility.ARCHIVED


def require_visible(what: str, item: Hideable, *, archived: bool = False) -> None:
    """Raise a ``ConflictError`` that names ``what`` unless new work may use an object."""
    state = visibility_of(item)
    if state is Visibility.DELETED or (state is Visibility.ARCHIVED and not archived):
        raise ConflictError(f"{what} is {state.value}.", remedy="Restore it first, or choose another.")
