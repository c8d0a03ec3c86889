"""How stores are kept to one project: a store without one sees the ids of all, and the names of the default project."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.storage.tables import DEFAULT_PROJECT_ID


def named(table: sa.Table, name: str | UUID, project: UUID | None) -> sa.ColumnElement[bool]:
    """Return what finds a row by id or slug in a project."""
    try:
        by_id = table.c.id == (name if isinstance(name, UUID) else UUID(name))
    except ValueError:
        return sa.and_(table.c.slug == str(name), table.c.project_id == (project or DEFAULT_PROJECT_ID))
    return by_id if project is None else sa.and_(by_id, table.c.project_id == project)


def within(alias: str, project: UUID | None) -> tuple[str, dict[str, Any]]:
    """Return the same for a list in SQL: a clause that keeps to a project (empty for all) and what it binds."""
    return ("", {}) if project is None else (f"{alias}.project_id = :project", {"project": project})
