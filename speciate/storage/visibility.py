"""Build the SQL of archiving and deleting, which runs, problems and policies share."""

from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.visibility import Visibility, VisibilityChange

# The index of hidden runs is partial, so its condition is repeated.
_CONDITIONS: Final = {
    Visibility.VISIBLE: "{0}archived_at IS NULL AND {0}deleted_at IS NULL",
    Visibility.ARCHIVED: "{0}archived_at IS NOT NULL AND {0}deleted_at IS NULL",
    Visibility.DELETED: "{0}deleted_at IS NOT NULL",
    Visibility.ALL: "true",
}
_HIDDEN: Final = " AND ({0}archived_at IS NOT NULL OR {0}deleted_at IS NOT NULL)"


def visibility_condition(visibility: Visibility, alias: str = "") -> str:
    """SQL condition of a list filter; ``alias`` is that of the table, with a dot."""
    hidden = visibility in {Visibility.ARCHIVED, Visibility.DELETED}
    return (_CONDITIONS[visibility] + _HIDDEN * hidden).format(alias)


def changed_columns(table: sa.Table, change: VisibilityChange) -> dict[str, Any]:
    """Return the columns that a change sets. A repetition keeps the first time."""
    archived, deleted, now = table.c.archived_at, table.c.deleted_at, sa.func.clock_timestamp()
    match change:
        case VisibilityChange.ARCHIVE:
            return {"archived_at": sa.func.coalesce(archived, now)}
        case VisibilityChange.DELETE:
            return {"deleted_at": sa.func.coalesce(deleted, now)}
        case VisibilityChange.RESTORE:
            return {"archived_at": sa.case((deleted.is_not(None), archived)), "deleted_at": None}


def change_visibility(connection: sa.Connection, table: sa.Table, row_id: UUID, change: VisibilityChange) -> None:
    connection.execute(sa.update(table).where(table.c.id == row_id).values(changed_columns(table, change)))
