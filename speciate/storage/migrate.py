"""The revision of a database's schema, and its upgrade by the scripts of ``migrations``.

SQLAlchemy and Alembic are imported by an upgrade only: commands that compare revisions start without them.
"""

from __future__ import annotations

import logging
import time
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

import psycopg

from speciate import __version__, process_roots
from speciate.domain.errors import ConfigurationError, ConflictError

if TYPE_CHECKING:
    import sqlalchemy as sa
    from alembic.config import Config

FIRST_REVISION: Final = "0210"
"""Schema of the first release; lower numbers were used before it and are unknown."""

NEWEST_REVISION: Final = "0210"
"""Schema that the statements of ``speciate.storage`` expect."""

NEWER_REMEDY: Final = "A newer version of Speciate wrote it: upgrade Speciate, or use another database."

_LOCK = 0x5EC1A7E
_SCRIPTS: Final = process_roots.FOLDER / "migrations"
# A session that waits for a table lock blocks every later one, so the migration gives up soon and tries again.
_LOCK_TIMEOUT: Final = "SET lock_timeout = '3s'"
_LOCK_TRIES: Final = 20
_LOCK_NOT_AVAILABLE: Final = "55P03"
_log = logging.getLogger(__name__)


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


def check_schema(revision: str | None) -> None:
    """Raise ``ConfigurationError`` with the remedy unless this version works with a schema revision."""
    match schema_state(revision):
        case SchemaState.UNKNOWN:
            raise _refused(revision, None)
        case SchemaState.OLDER:
            needed = f"the schema has revision {revision or 'none'}, {NEWEST_REVISION} is needed."
            raise ConfigurationError(needed, remedy="Run `speciate migrate`.")


def revision_of(database_url: str) -> str | None:
    """Return the schema revision of a database, or None if it is empty; raises ``psycopg.Error`` without a server."""
    url = database_url.replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(url, connect_timeout=5) as connection:
        try:
            row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        except psycopg.errors.UndefinedTable:
            return None
    return None if row is None else str(row[0])


def ensure_newest_schema(database_url: str, *, data_dir: Path | None = None) -> None:
    """Upgrade the schema unless it is the newest one or newer; see ``upgrade``."""
    try:
        if schema_state(revision_of(database_url)) in {SchemaState.CURRENT, SchemaState.NEWER}:
            return
    except psycopg.Error:
        pass  # the upgrade reports the reason
    from speciate.storage.database import check_version, connect

    engine = connect(database_url)
    try:
        check_version(engine)
        upgrade(engine, data_dir=data_dir)
    finally:
        engine.dispose()


def current_revision(engine: sa.Engine) -> str | None:
    from speciate.storage.database import reading

    with reading(engine) as connection:
        if connection.exec_driver_sql("SELECT to_regclass('alembic_version')").scalar_one() is None:
            return None
        query = "SELECT version_num FROM alembic_version"
        return cast("str | None", connection.exec_driver_sql(query).scalar_one_or_none())


def upgrade(engine: sa.Engine, *, data_dir: Path | None = None) -> None:
    """Upgrade the schema while other processes use it; several processes may call this at once.

    The database must not be behind a pooler. ``data_dir`` holds it, for the error message; None for another server.

    Raises:
        ConfigurationError: A newer or an unreleased version wrote the schema.
        ConflictError: A long transaction holds a table; migrations that were committed stay.
    """
    from alembic.util.exc import CommandError

    with engine.connect() as connection:
        # Held by the session, because it spans the transactions of all migrations.
        connection.exec_driver_sql(f"SELECT pg_advisory_lock({_LOCK})")
        connection.commit()
        try:
            revision = current_revision(engine)
            if schema_state(revision) is SchemaState.UNKNOWN:
                raise _refused(revision, data_dir)
            _upgrade(connection)
        except CommandError as error:
            raise ConfigurationError(
                f"the database's schema cannot be upgraded: {error}.", remedy=NEWER_REMEDY
            ) from error
        finally:
            connection.rollback()
            connection.exec_driver_sql(f"SELECT pg_advisory_unlock({_LOCK})")
            connection.exec_driver_sql("RESET lock_timeout")
            connection.commit()


def _refused(revision: str | None, data_dir: Path | None) -> ConfigurationError:
    holder = "The database" if data_dir is None else f"The database in {data_dir}"
    remedy = "Use another database."
    if data_dir is not None:
        remedy = "Move or delete this directory, or set SPECIATE_DATA_DIR to another one."
    return ConfigurationError(
        f"{holder} has schema revision {revision} of an unreleased version, which Speciate {__version__} cannot read.",
        remedy=remedy,
    )


def _upgrade(connection: sa.Connection) -> None:
    from alembic import command
    from sqlalchemy.exc import OperationalError

    config = alembic_config(connection)
    connection.exec_driver_sql(_LOCK_TIMEOUT)
    connection.commit()
    for tries_left in reversed(range(_LOCK_TRIES)):
        try:
            command.upgrade(config, "head")
            connection.commit()
        except OperationalError as error:
            connection.rollback()
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            if not tries_left:
                raise ConflictError(
                    "the schema could not be upgraded: a transaction holds a table for minutes.",
                    remedy="Find it in pg_stat_activity, then try again; the service keeps working.",
                ) from error
            _log.warning("a table is locked, retrying the migration")
            time.sleep(1.0)
        else:
            return


def alembic_config(connection: sa.Connection) -> Config:
    """Return the configuration of Alembic's commands on a connection."""
    from alembic.config import Config

    logging.getLogger("alembic").setLevel(logging.WARNING)  # no line per migration on the console
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
