"""The newest revision of the schema, for a look that does not load the migrations."""

from __future__ import annotations

from typing import Final

import psycopg

NEWEST: Final = "0012"
"""Revision that ``speciate.storage.tables`` describes; a test compares it with ``migrations/versions``."""


def has_newest_schema(database_url: str) -> bool:
    """Tell whether a database has the newest schema; False also when that cannot be found out."""
    try:
        with psycopg.connect(
            database_url.replace("postgresql+psycopg://", "postgresql://"), connect_timeout=5
        ) as connection:
            return connection.execute("SELECT version_num FROM alembic_version").fetchall() == [(NEWEST,)]
    except psycopg.Error:
        # No table yet, or no server: whoever migrates finds out and says so.
        return False
