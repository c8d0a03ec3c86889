"""Bringing the schema of a database up to date."""

from __future__ import annotations

import logging
import time
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util.exc import CommandError
from sqlalchemy.exc import OperationalError

from speciate import process_roots
from speciate.domain.errors import ConfigurationError, ConflictError

_LOCK = 0x5EC1A7E
_SCRIPTS: Final = process_roots.FOLDER / "migrations"
# Whoever waits for a lock on a table keeps everybody else from it: so it gives up soon, and tries again.
_LOCK_TIMEOUT: Final = "SET lock_timeout = '3s'"
_LOCK_TRIES: Final = 20
_LOCK_NOT_AVAILABLE: Final = "55P03"
_log = logging.getLogger(__name__)


def upgrade(engine: sa.Engine) -> None:
    """Upgrade the schema while others work with it; several processes may call this at once.

    Raises:
        ConfigurationError: The database was made by a newer version.
        ConflictError: A long transaction held a table all the time; what was migrated until then stays.
    """
    config = _config()
    with engine.connect() as connection:
        # Held by the session, so that it spans the transactions of all migrations.
        connection.execute(sa.select(sa.func.pg_advisory_lock(_LOCK)))
        connection.commit()
        try:
            if not is_current(engine):
                config.attributes["connection"] = connection
                _upgrade(config, connection)
        except CommandError as error:
            raise ConfigurationError(
                f"the database's schema cannot be upgraded: {error}.",
                remedy="It was made by a newer version of Speciate: upgrade, or use another database.",
            ) from error
        finally:
            connection.rollback()
            connection.execute(sa.select(sa.func.pg_advisory_unlock(_LOCK)))
            connection.exec_driver_sql("RESET lock_timeout")
            connection.commit()


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
                    remedy="Find it in pg_stat_activity, then try again; the service works on meanwhile.",
                ) from error
            _log.warning("a table is in use, the migration tries again")
            time.sleep(1.0)
        else:
            return


def downgrade(engine: sa.Engine, revision: str) -> None:
    """Downgrade the schema to a revision, ``base`` being empty."""
    config = _config()
    with engine.connect() as connection:
        config.attributes["connection"] = connection
        command.downgrade(config, revision)
        connection.commit()


def current(engine: sa.Engine) -> str | None:
    """Return the revision of the database, or None when it is empty."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection).get_current_revision()


def is_current(engine: sa.Engine) -> bool:
    """Tell whether the database has the newest revision."""
    return current(engine) == ScriptDirectory.from_config(_config()).get_current_head()


def _config() -> Config:
    # Alembic would otherwise announce every step on the console.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS).replace("%", "%%"))
    return config
