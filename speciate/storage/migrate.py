"""Upgrade a database's schema."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy.exc import OperationalError

from speciate import __version__, process_roots
from speciate.domain.errors import ConfigurationError, ConflictError
from speciate.storage.database import current_revision
from speciate.storage.revision import SchemaState, schema_state

_LOCK = 0x5EC1A7E
_SCRIPTS: Final = process_roots.FOLDER / "migrations"
# A session that waits for a table lock blocks every later one, so the migration gives up soon and tries again.
_LOCK_TIMEOUT: Final = "SET lock_timeout = '3s'"
_LOCK_TRIES: Final = 20
_LOCK_NOT_AVAILABLE: Final = "55P03"
_log = logging.getLogger(__name__)


def upgrade(engine: sa.Engine, *, data_dir: Path | None = None) -> None:
    """Upgrade the schema while other processes use it; several processes may call this at once.

    Args:
        engine: The database, not behind a pooler.
        data_dir: Data directory that holds the database, for the error message; None for another server.

    Raises:
        ConfigurationError: A newer or an unreleased version wrote the schema.
        ConflictError: A long transaction holds a table; migrations that were committed stay.
    """
    config = _config()
    with engine.connect() as connection:
        # Held by the session, because it spans the transactions of all migrations.
        connection.execute(sa.select(sa.func.pg_advisory_lock(_LOCK)))
        connection.commit()
        try:
            revision = current_revision(engine)
            if schema_state(revision) is SchemaState.UNKNOWN:
                raise _unknown(revision, data_dir)
            if not is_current(engine):
                config.attributes["connection"] = connection
                _upgrade(config, connection)
        except CommandError as error:
            raise ConfigurationError(
                f"the database's schema cannot be upgraded: {error}.",
                remedy="A newer version of Speciate wrote it: upgrade Speciate, or use another database.",
            ) from error
        finally:
            connection.rollback()
            connection.execute(sa.select(sa.func.pg_advisory_unlock(_LOCK)))
            connection.exec_driver_sql("RESET lock_timeout")
            connection.commit()


def _unknown(revision: str | None, data_dir: Path | None) -> ConfigurationError:
    holder = "The database" if data_dir is None else f"The database in {data_dir}"
    remedy = "Use another database."
    if data_dir is not None:
        remedy = "Move or delete this directory, or set SPECIATE_DATA_DIR to another one."
    return ConfigurationError(
        f"{holder} has schema revision {revision} of an unreleased version, which Speciate {__version__} cannot read.",
        remedy=remedy,
    )


def _upgrade(config: Config, connection: sa.Connection) -> None:
    connection.exec_driver_sql(_LOCK_TIMEOUT)
    connection.commit()
    for left in reversed(range(_LOCK_TRIES)):
        try:
            command.upgrade(config, "head")
            connection.commit()
        except OperationalError as error:
            connection.rollback()
            if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
                raise
            if not left:
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
    config = _config()
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
        connection.commit()


def is_current(engine: sa.Engine) -> bool:
    """Return True if the database has the newest revision."""
    return current_revision(engine) == ScriptDirectory.from_config(_config()).get_current_head()


def _config() -> Config:
    logging.getLogger("alembic").setLevel(logging.WARNING)  # no line per migration on the console
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    return config
