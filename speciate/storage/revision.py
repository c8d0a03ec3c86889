"""The newest revision of the schema, for a look that does not load the migrations."""

from __future__ import annotations

from enum import Enum
from typing import Final

import psycopg

NEWEST_REVISION: Final = "0016"
"""Revision that ``speciate.storage.tables`` describes; a test compares it with ``migrations/versions``."""


class SchemaState(Enum):
    """A database's schema as this program sees it. Revisions are numbers of four digits, one after the other."""

    CURRENT = "current"
    NEWER = "newer"
    """Migrated for a later release: it holds all that this program needs, since migrations only ever add."""
    OLDER = "older"
    """Not migrated yet, or empty."""


def schema_state(revision: str | None) -> SchemaState:
    """Return how a revision stands to ``NEWEST_REVISION``; None is an empty database."""
    if revision == NEWEST_REVISION:
        return SchemaState.CURRENT
    return SchemaState.NEWER if revision is not None and revision > NEWEST_REVISION else SchemaState.OLDER


def revision_of(database_url: str) -> str | None:
    """Return the revision of a database, None for an empty one.

    Raises:
        psycopg.Error: It does not answer.
    """
    address = database_url.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(address, connect_timeout=5) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except psycopg.errors.UndefinedTable:
            return None
    return None if row is None else str(row[0])


def has_newest_schema(database_url: str) -> bool:
    """Tell whether a database has the newest schema; False also when that cannot be found out."""
    try:
        return revision_of(database_url) == NEWEST_REVISION
    except psycopg.Error:
        return False  # whoever migrates finds out and says so
