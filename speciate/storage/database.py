"""Connect to PostgreSQL, and retry calls while the server restarts."""

import functools
import logging
import math
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Concatenate, Final, ParamSpec, TypeVar, cast
from uuid import UUID

import psycopg
import sqlalchemy as sa
from pydantic_core import from_json
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError

from speciate.domain.errors import ConfigurationError, NewerRecordError, UnavailableError
from speciate.ids import uuid7
from speciate.storage.tables.columns import DEFAULT_PROJECT_ID

MINIMUM_VERSION = 15
"""Oldest supported PostgreSQL major version."""

_GRACE_S: Final = 5.0
"""Seconds beyond the time limit of a statement after which a server that does not answer is given up."""

_NETWORK_LIMITS: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
"""Parameters of TCP connections: a host that vanished without closing them is noticed within half a minute. By default
a process would wait for two hours."""

_log = logging.getLogger(__name__)

R = TypeVar("R")


class StorageFullError(UnavailableError, slug="storage-full", title="The database has no space left"):
    """PostgreSQL has no disk space left; nothing was written."""


class StatementTooLongError(UnavailableError, slug="statement-too-long", title="The database took too long"):
    """A statement exceeded the time limit of its connection; nothing was written."""


def connect(url: str, *, pool_size: int = 20, pooled: bool = False, statement_s: float = 0.0) -> sa.Engine:
    """Return an engine for the database; it connects on first use.

    At most ``pool_size`` connections stay open, since opening one costs more than a request, until
    ``Stores.close_unused`` closes them. ``pooled`` says that the URL leads through a pooler in transaction mode, where
    every transaction may run in another session. A statement may take ``statement_s`` seconds, 0 for no limit. Behind a
    pooler, whose sessions are shared, the server does not enforce it; this process gives up a few seconds later.
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
        # Parameters include programs and completions, and errors are logged.
        hide_parameters=True,
        connect_args={
            "connect_timeout": 5,
            "application_name": "speciate",
            # Otherwise a database without an encoding (SQL_ASCII) returns bytes before it can be refused.
            "client_encoding": "utf8",
            # Prepared statements belong to a session.
            **({"prepare_threshold": None} if pooled else {}),
            **{name: value for name, value in _NETWORK_LIMITS.items() if name not in parsed.query},
        },
    )
    if statement_s:
        sa.event.listen(engine, "do_connect", functools.partial(_connect_bounded, statement_s + _GRACE_S))
    # Times are returned in the session's zone, by default the server's; the service shows UTC.
    _execute_on_connect(engine, "SET TIME ZONE 'UTC'")
    if statement_s and not pooled:
        _execute_on_connect(engine, f"SET statement_timeout = {math.ceil(1000 * statement_s)}")
    return engine


class _BoundedConnection(psycopg.Connection[Any]):
    """Connection that gives up when the server does not answer in time, as while its process is frozen."""

    answer_s = math.inf
    """Seconds that an answer may take."""

    def wait(self, gen: Generator[Any, Any, R], *args: Any, **kwargs: Any) -> R:
        """Wait for an answer; raises ``OperationalError``, and closes the connection, if there is none in time."""
        return super().wait(self._bounded(gen), *args, **kwargs)

    def _bounded(self, gen: Generator[Any, Any, R]) -> Generator[Any, Any, R]:
        deadline = time.monotonic() + self.answer_s
        ready: Any = None
        while True:
            try:
                state = gen.send(ready)
            except StopIteration as end:
                return cast("R", end.value)
            ready = yield state
            if not ready and time.monotonic() > deadline:  # psycopg resumes the generator several times a second
                self.pgconn.finish()
                raise psycopg.OperationalError(f"no answer within {self.answer_s:g} s")


def _connect_bounded(answer_s: float, _: object, __: object, args: list[Any], parameters: dict[str, Any]) -> Any:
    connection = _BoundedConnection.connect(*args, **parameters)
    connection.answer_s = answer_s
    return connection


def _execute_on_connect(engine: sa.Engine, statement: str) -> None:
    @sa.event.listens_for(engine, "connect")
    def execute(connection: DBAPIConnection, _: object) -> None:
        cursor = connection.cursor()
        cursor.execute(statement)
        cursor.close()
        connection.commit()


@contextmanager
def reading(engine: sa.Engine) -> Iterator[sa.Connection]:
    """Yield a connection for reads, on which every statement is its own transaction.

    This saves the round trips of BEGIN and ROLLBACK. Moreover, psycopg drops prepared statements at a ROLLBACK, and
    PostgreSQL then plans each query again, which takes several times longer than running it.
    """
    with engine.connect() as connection:
        yield connection.execution_options(isolation_level="AUTOCOMMIT")


writing_once = reading
"""For one statement that writes, which is its own transaction."""


def check_version(engine: sa.Engine) -> str:
    """Return the server's version; ``ConfigurationError`` if it is too old, or the database's encoding is not UTF8."""
    settings = [f"current_setting('{name}')" for name in ("server_version_num", "server_version", "server_encoding")]
    try:
        with engine.connect() as connection:
            number, version, encoding = connection.exec_driver_sql(f"SELECT {', '.join(settings)}").one()
    except OperationalError as error:
        raise UnavailableError(f"PostgreSQL does not respond: {first_line(error.orig)}.") from error
    if int(number) // 10_000 < MINIMUM_VERSION:
        raise ConfigurationError(
            f"PostgreSQL {version} is too old.", remedy=f"Version {MINIMUM_VERSION} or newer is needed."
        )
    if encoding != "UTF8":
        raise ConfigurationError(
            f"The database's encoding is {encoding}, which cannot store every program.",
            remedy="Create it with UTF8: `CREATE DATABASE name ENCODING 'UTF8' LOCALE 'C.UTF-8' TEMPLATE template0`.",
        )
    return str(version)


P = ParamSpec("P")
S = TypeVar("S", bound="Store")


def with_retries(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], R]:
    """Repeat a store's method while the server is away, for at most ``retry_for_s`` seconds.

    Every method is one transaction, and those that commit work are fenced by its lease or the id of a request: if the
    connection breaks after the server committed, the repetition finds the work done and changes nothing.

    Raises (from the decorated method):
        StorageFullError: The disk is full.
        StatementTooLongError: A statement exceeded the connection's time limit.
        UnavailableError: The server did not return in time.
    """

    @functools.wraps(method)
    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        deadline = time.monotonic() + self.retry_for_s
        delay = 0.05
        while True:
            try:
                return method(self, *args, **kwargs)
            except sa.exc.TimeoutError as error:
                raise UnavailableError("all database connections are in use.", remedy="Retry in a moment.") from error
            except (OperationalError, InterfaceError) as error:
                _raise_final(error)
                if not _is_away(error) and getattr(error.orig, "sqlstate", None) not in {"40001", "40P01", "55P03"}:
                    raise
                if time.monotonic() + delay > deadline:
                    raise UnavailableError(f"PostgreSQL does not respond: {first_line(error.orig)}.") from error
                _log.warning("PostgreSQL does not respond, retrying in %.2f s: %s", delay, first_line(error.orig))
            time.sleep(delay)
            delay = min(delay * 2, 1.0)

    return cast("Callable[Concatenate[S, P], R]", call)


@dataclass
class Store:
    _engine: sa.Engine
    retry_for_s: float = field(default=5.0, kw_only=True)
    """Seconds to retry a call while the server restarts."""

    @with_retries
    def _rows(self, query: sa.Executable, binds: Mapping[str, Any] | None = None) -> Sequence[sa.Row[Any]]:
        with reading(self._engine) as connection:
            return connection.execute(query, binds).all()

    def _row(self, query: sa.Executable, binds: Mapping[str, Any] | None = None) -> sa.Row[Any] | None:
        """Return the first row, if there is any."""
        return next(iter(self._rows(query, binds)), None)

    def _value(self, query: sa.Executable, binds: Mapping[str, Any] | None = None) -> Any:
        """Return the first column of the first row, or None."""
        row = self._row(query, binds)
        return None if row is None else row[0]

    @with_retries
    def _execute(self, statement: sa.Executable, binds: Mapping[str, Any] | None = None) -> int:
        """Execute one statement in a transaction of its own; return the number of its rows."""
        with self._engine.begin() as connection:
            return connection.execute(statement, binds).rowcount


@dataclass
class ScopedStore(Store):
    """Base of stores that can be restricted to one project."""

    project: UUID | None = field(default=None, kw_only=True)
    """Project to read from and write to. None reads the ids of all projects and the names of the default one, and
    writes to the default one."""

    @property
    def _home(self) -> UUID:
        return self.project or DEFAULT_PROJECT_ID


def with_new_id(method: Callable[Concatenate[S, UUID, P], R]) -> Callable[Concatenate[S, P], R]:
    """As ``with_retries``, for a method that takes a new id first: a repetition finds what the first attempt wrote."""
    retried = with_retries(method)

    @functools.wraps(method)
    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        return retried(self, uuid7(), *args, **kwargs)

    return cast("Callable[Concatenate[S, P], R]", call)


def reads(query: Callable[Concatenate[sa.Connection, P], R]) -> Callable[Concatenate[Store, P], R]:
    """Make a function that reads from a connection a method of a store."""

    def method(self: Store, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with reading(self._engine) as connection:
            return query(connection, *args, **kwargs)

    return with_retries(method)


@contextmanager
def guarded(part: str) -> Iterator[None]:
    """Log an error of one part of a pass, so that the others run; one of a server that is away ends the pass."""
    try:
        yield
    except NewerRecordError as error:
        _log.warning("%s: %s", part, error)
    except Exception as error:
        away = isinstance(error, OperationalError | InterfaceError) and _is_away(error)
        if away or isinstance(error, UnavailableError):
            raise
        _log.exception("%s", part)


def _raise_final(error: DBAPIError) -> None:
    match getattr(error.orig, "sqlstate", None):
        case "53100":
            raise StorageFullError(
                "PostgreSQL's disk is full; nothing was written.", remedy="Free space, then resume the run."
            ) from error
        case "57014":
            raise StatementTooLongError(
                "a statement exceeded the time limit SPECIATE_STATEMENT_S of PostgreSQL.",
                remedy="Request less at once, or try again when the database is less busy.",
            ) from error


def _is_away(error: DBAPIError) -> bool:
    state = getattr(error.orig, "sqlstate", None)
    # 57P01 to 57P03: the server is shutting down or starting.
    return error.connection_invalidated or state is None or state[:2] in {"08", "57"}


def first_line(error: BaseException | None) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
