"""The revision of a database's schema, and its upgrade by the scripts of ``migrations``.

SQLAlchemy and Alembic are imported by an upgrade only: commands that compare revisions start without them.
"""

from __future__ import annotations

import logging
import time
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import psycopg

from speciate import __version__, process_roots
from speciate.domain.errors import ConfigurationError, ConflictError

if TYPE_CHECKING:
    import sqlalchemy as sa
    from alembic.config import Config

FIRST_REVISION: Final = "0200"
"""Schema of the first release; lower numbers were used before it and are unknown."""

NEWEST_REVISION: Final = "0203"
"""Schema that ``speciate.storage.tables`` declares; a test compares it with ``migrations/versions``."""

_STORED_DIGEST: Final = "obj_description('alembic_version'::regclass)"

_LOCK = 0x5EC1A7E
_SCRIPTS: Final = process_roots.FOLDER / "migrations"
# A session that waits for a table lock blocks every later one, so the migration gives up soon and tries again.
_LOCK_TIMEOUT: Final = "SET lock_timeout = '3s'"
_LOCK_TRIES: Final = 20
_LOCK_NOT_AVAILABLE: Final = "55P03"
_OPERATORS: Final = ("remove_table", "remove_index", "remove_constraint", "remove_fk")
"""Differences that an operator's own tables, indexes and constraints make."""
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
            row = connection.execute(f"SELECT version_num, {_STORED_DIGEST} FROM alembic_version").fetchone()
    except psycopg.Error:
        return False  # the migration reports the reason
    return row == (NEWEST_REVISION, migrations_digest())


def ensure_newest_schema(database_url: str, *, data_dir: Path | None = None) -> None:
    """Upgrade the schema unless these migrations made it; see ``upgrade``."""
    if has_newest_schema(database_url):
        return
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
        ConfigurationError: A newer or an unreleased version wrote the schema, or its tables are not the declared ones.
        ConflictError: A long transaction holds a table; migrations that were committed stay.
    """
    from alembic.util.exc import CommandError

    config = _config()
    with engine.connect() as connection:
        # Held by the session, because it spans the transactions of all migrations.
        connection.exec_driver_sql(f"SELECT pg_advisory_lock({_LOCK})")
        connection.commit()
        try:
            revision = current_revision(engine)
            if schema_state(revision) is SchemaState.UNKNOWN:
                raise _refused(f"schema revision {revision} of an unreleased version", data_dir)
            if not is_current(engine):
                config.attributes["connection"] = connection
                _upgrade(config, connection)
            _check_schema(connection, data_dir, is_new=revision is None)
        except CommandError as error:
            raise ConfigurationError(
                f"the database's schema cannot be upgraded: {error}.",
                remedy="A newer version of Speciate wrote it: upgrade Speciate, or use another database.",
            ) from error
        finally:
            connection.rollback()
            connection.exec_driver_sql(f"SELECT pg_advisory_unlock({_LOCK})")
            connection.exec_driver_sql("RESET lock_timeout")
            connection.commit()


def _check_schema(connection: sa.Connection, data_dir: Path | None, *, is_new: bool) -> None:
    """Compare the tables with the declared ones, unless these very migrations made or passed them before.

    Raises:
        ConfigurationError: They differ: another text of the same revision made them.
    """
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    from speciate.storage.tables import metadata

    digest = migrations_digest()
    if connection.exec_driver_sql(f"SELECT {_STORED_DIGEST}").scalar_one() == digest:
        return
    context = MigrationContext.configure(connection, opts={"compare_server_default": False})
    differences = [] if is_new else [d for d in compare_metadata(context, metadata) if d[0] not in _OPERATORS]
    if differences:
        where = ", ".join(dict.fromkeys(map(_place, differences)))[:200]
        raise _refused(f"a schema that no released version made (different: {where})", data_dir)
    connection.exec_driver_sql(f"COMMENT ON TABLE alembic_version IS '{digest}'")
    connection.commit()


def _place(difference: Any) -> str:
    """Return the table, with the column if there is one, of a difference that Alembic found."""
    kind, *parts = difference[0] if isinstance(difference, list) else difference
    if kind in {"add_column", "remove_column"}:
        return f"{parts[1]}.{parts[2].name}"
    if kind.startswith("modify_"):
        return f"{parts[1]}.{parts[2]}"
    return str(getattr(parts[0], "table", parts[0]))


def _refused(what: str, data_dir: Path | None) -> ConfigurationError:
    holder = "The database" if data_dir is None else f"The database in {data_dir}"
    remedy = "Use another database."
    if data_dir is not None:
        remedy = "Move or delete this directory, or set SPECIATE_DATA_DIR to another one."
    return ConfigurationError(f"{holder} has {what}, which Speciate {__version__} cannot read.", remedy=remedy)


def _upgrade(config: Config, connection: sa.Connection) -> None:
    from alembic import command
    from sqlalchemy.exc import OperationalError

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


def downgrade(engine: sa.Engine, revision: str) -> None:
    """Downgrade the schema to a revision; ``base`` is empty."""
    from alembic import command

    config = _config()
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
        connection.commit()


def is_current(engine: sa.Engine) -> bool:
    from alembic.script import ScriptDirectory

    return current_revision(engine) == ScriptDirectory.from_config(_config()).get_current_head()


def _config() -> Config:
    from alembic.config import Config

    logging.getLogger("alembic").setLevel(logging.WARNING)  # no line per migration on the console
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    return config
