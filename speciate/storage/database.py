"""Connections to PostgreSQL: one engine a process, and patience while the server restarts."""

from __future__ import annotations

import functools
import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar, cast

import sqlalchemy as sa
from pydantic_core import from_json
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from speciate.domain.errors import ConfigurationError, UnavailableError

MINIMUM_VERSION = 15
"""Oldest PostgreSQL major version that is supported."""

_DISK_FULL = "53100"
_CANCELED = "57014"
_log = logging.getLogger(__name__)


class StorageFullError(UnavailableError):
    """PostgreSQL has no disk space left; nothing was written."""

    slug = "storage-full"
    title = "The database has no space left"


class StatementTooLongError(UnavailableError):
    """A statement took longer than the connection lets one take; nothing was written."""

    slug = "statement-too-long"
    title = "The database took too long"


def connect(url: str, *, pool_size: int = 20, pooled: bool = False, statement_s: float = 0.0) -> sa.Engine:
    """Return an engine for the database; connections are made when they are needed.

    Args:
        url: ``postgresql://…`` or ``postgresql+psycopg://…``.
        pool_size: Most connections. Those that were opened are kept: a new one costs more than a request.
        pooled: The address leads through a pooler in transaction mode, where every transaction may be another session.
        statement_s: Longest time that one statement may take; 0 is any. Without effect behind a pooler, whose sessions
            are everybody's.
    """
    parsed = sa.make_url(url)
    if parsed.get_backend_name() not in {"postgresql", "postgres"}:
        raise ConfigurationError(
            f"database_url names {parsed.get_backend_name()!r}.", remedy="Expected postgresql://user@host/database."
        )
    engine = sa.create_engine(
        parsed.set(drivername="postgresql+psycopg"),
        pool_size=pool_size,
        max_overflow=0,
        pool_use_lifo=True,
        json_deserializer=from_json,  # several times faster than the standard library's
        pool_timeout=30,
        # Programs and completions are parameters, and errors end up in logs.
        hide_parameters=True,
        connect_args={
            "connect_timeout": 5,
            "application_name": "speciate",
            # A database without an encoding (SQL_ASCII) would answer bytes before it can be refused.
            "client_encoding": "utf8",
            # What one session prepared, the next one would not know.
            **({"prepare_threshold": None} if pooled else {}),
        },
    )
    sa.event.listen(engine, "connect", _keep_utc)
    if statement_s and not pooled:
        sa.event.listen(engine, "connect", functools.partial(_bound_statements, statement_s))
    return engine


def _keep_utc(connection: DBAPIConnection, _: object) -> None:
    # Times come in the zone of the session, which is the server's own where nobody says otherwise; we show them as UTC.
    cursor = connection.cursor()
    cursor.execute("SET TIME ZONE 'UTC'")
    cursor.close()
    connection.commit()


def _bound_statements(seconds: float, connection: DBAPIConnection, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute(f"SET statement_timeout = {math.ceil(1000 * seconds)}")
    cursor.close()
    connection.commit()


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Lend a connection on which every statement is a transaction of its own: for reading, never for writing.

    BEGIN and ROLLBACK are two trips that reads need not make. What is worse, psycopg forgets at a ROLLBACK what it has
    prepared, and PostgreSQL then plans each query anew, which takes several times longer than to answer it.
    """
    with engine.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")


def check_version(engine: sa.Engine) -> str:
    """Return the server's version.

    Raises:
        ConfigurationError: The server is too old, or the database does not hold Unicode.
        UnavailableError: It does not answer.
    """
    settings = [f"current_setting('{name}')" for name in ("server_version_num", "server_version", "server_encoding")]
    try:
        with engine.connect() as connection:
            number, version, encoding = connection.exec_driver_sql(f"SELECT {', '.join(settings)}").one()
    except OperationalError as error:
        raise UnavailableError(f"PostgreSQL does not answer: {_first_line(error)}.") from error
    if int(number) // 10_000 < MINIMUM_VERSION:
        raise ConfigurationError(
            f"PostgreSQL {version} is too old.", remedy=f"Version {MINIMUM_VERSION} or newer is needed."
        )
    if encoding != "UTF8":
        raise ConfigurationError(
            f"The database's encoding is {encoding}: it cannot hold every program and answer.",
            remedy="Make it with UTF8: `CREATE DATABASE name ENCODING 'UTF8' LOCALE 'C.UTF-8' TEMPLATE template0`.",
        )
    return str(version)


class Retrying(Protocol):
    """A repository: an engine, and how long its calls wait for a server that restarts."""

    _engine: sa.Engine
    retry_for_s: float


@dataclass
class Outage:
    """What calls of one request found out about the server; threads that work for it share the object.

    Attributes:
        met: Whether one of them waited in vain.
    """

    met: bool = False


_outage: Final[ContextVar[Outage | None]] = ContextVar("outage", default=None)


@contextmanager
def noting_outage() -> Iterator[Outage]:
    """Note, in what is yielded, whether a call in this block waited for the server in vain."""
    outage = Outage()
    before = _outage.set(outage)
    try:
        yield outage
    finally:
        _outage.reset(before)


def _note_outage() -> None:
    if (outage := _outage.get()) is not None:
        outage.met = True


P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Retrying)


def with_retries(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Repeat a repository's method while the server is away, at most ``retry_for_s`` seconds.

    Every method is one transaction, and those that book work are fenced by its lease: when a connection breaks after
    the server committed, the repetition finds the lease gone and changes nothing.

    Raises (from the decorated method):
        StorageFullError: The disk is full.
        StatementTooLongError: A statement was ended by the connection's limit.
        UnavailableError: The server stayed away.
    """

    @functools.wraps(method)
    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        deadline = time.monotonic() + self.retry_for_s
        delay = 0.05
        while True:
            try:
                return method(self, *args, **kwargs)
            except (OperationalError, InterfaceError) as error:
                if getattr(error.orig, "sqlstate", None) == _DISK_FULL:
                    raise StorageFullError(
                        "PostgreSQL's disk is full; nothing was written.", remedy="Free space, then resume the run."
                    ) from error
                if getattr(error.orig, "sqlstate", None) == _CANCELED:
                    raise StatementTooLongError(
                        "PostgreSQL needed longer for a statement than SPECIATE_STATEMENT_S allows.",
                        remedy="Ask for less at once, or try again when the database has less to do.",
                    ) from error
                away = _is_away(error)
                if not (away or _is_conflict(error)):
                    raise
                if time.monotonic() + delay > deadline:
                    if away:
                        _note_outage()
                    raise UnavailableError(f"PostgreSQL does not answer: {_first_line(error)}.") from error
                _log.warning("PostgreSQL is away, trying again in %.2f s: %s", delay, _first_line(error))
            except PoolTimeoutError:  # it has waited for a connection
                _note_outage()
                raise
            time.sleep(delay)
            delay = min(delay * 2, 1.0)

    return cast("Callable[Concatenate[S, P], R]", call)


def _is_away(error: DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    # 57P01..3: the server is shutting down or starting.
    return error.connection_invalidated or state is None or state[:2] in {"08", "57"}


def _is_conflict(error: DBAPIError) -> bool:
    # A repetition resolves it.
    return getattr(error.orig, "sqlstate", None) in {"40001", "40P01", "55P03"}


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().splitlines()[0] if str(error.orig).strip() else type(error.orig).__name__
