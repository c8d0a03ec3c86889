"""Compare a database's schema revision with this version's, without loading the migrations."""

from __future__ import annotations

from enum import Enum
from hashlib import sha256
from typing import Final

import psycopg

from speciate import process_roots

FIRST_REVISION: Final = "0200"
"""Schema of the first release; lower numbers were used before it and are unknown."""

NEWEST_REVISION: Final = "0202"
"""Schema that ``speciate.storage.tables`` declares; a test compares it with ``migrations/versions``."""

STORED_DIGEST: Final = "obj_description('alembic_version'::regclass)"


class SchemaState(Enum):
    """A schema revision relative to ``NEWEST_REVISION``. Revisions are increasing four-digit numbers."""

    CURRENT = "current"
    NEWER = "newer"
    """Migrated by a later release, which keeps everything that this version needs: migrations only add."""
    OLDER = "older"
    """To be migrated, or empty."""
    UNKNOWN = "unknown"
    """Written by no release; cannot be migrated."""


def schema_state(revision: str | None) -> SchemaState:
    """Classify a revision; None is an empty database."""
    if revision is None:
        return SchemaState.OLDER
    if revision < FIRST_REVISION:
        return SchemaState.UNKNOWN
    if revision == NEWEST_REVISION:
        return SchemaState.CURRENT
    return SchemaState.NEWER if revision > NEWEST_REVISION else SchemaState.OLDER


def _connect(database_url: str) -> psycopg.Connection:
    address = database_url.replace("postgresql+psycopg://", "postgresql://")
    return psycopg.connect(address, connect_timeout=5)


def revision_of(database_url: str) -> str | None:
    """Return the schema revision of a database, or None if it is empty.

    Raises:
        psycopg.Error: The server does not respond.
    """
    with _connect(database_url) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except psycopg.errors.UndefinedTable:
            return None
    return None if row is None else str(row[0])


def migrations_digest() -> str:
    """Return the SHA-256 of all migrations; a database that they made carries it as comment of ``alembic_version``."""
    files = sorted((process_roots.FOLDER / "migrations" / "versions").glob("[0-9]*.py"))
    return sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()


def has_newest_schema(database_url: str) -> bool:
    """Return True if these migrations made a database's schema, False if not or if the server does not respond."""
    try:
        with _connect(database_url) as connection:
            row = connection.execute(f"SELECT version_num, {STORED_DIGEST} FROM alembic_version").fetchone()
    except psycopg.Error:
        return False  # the migration reports the reason
    return row == (NEWEST_REVISION, migrations_digest())
