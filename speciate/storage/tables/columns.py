"""Types and columns that tables share."""

from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as pg

metadata = sa.MetaData()

Id = pg.UUID(as_uuid=True)
Time = sa.DateTime(timezone=True)
Floats = pg.ARRAY(pg.DOUBLE_PRECISION)
Ints = pg.ARRAY(sa.BigInteger)
NOW = sa.text("now()")

DEFAULT_PROJECT_ID: Final = UUID(int=0)
"""Project of rows stored without one."""


def required(kind: Any, names: str, *, default: str | None = None) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind, nullable=False, server_default=default) for name in names.split()]


def optional(kind: Any, names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, kind) for name in names.split()]


def created() -> sa.Column[object]:
    return sa.Column("created_at", Time, nullable=False, server_default=NOW)


def hidden() -> tuple[sa.Column[object], sa.Column[object]]:
    return sa.Column("archived_at", Time), sa.Column("deleted_at", Time)


def project() -> sa.Column[object]:
    default = sa.text(f"'{DEFAULT_PROJECT_ID}'")
    return sa.Column("project_id", Id, sa.ForeignKey("projects.id"), nullable=False, server_default=default)


def table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    return sa.Table(name, metadata, *columns)


def named_table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    """Return a table of what a project holds by name, ``slug``."""
    return table(name, sa.Column("id", Id, primary_key=True), project(), *required(sa.Text, "slug"), *columns)
