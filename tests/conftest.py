"""Real servers: one pair per test worker, one database per test."""

from __future__ import annotations

import os

# Several test processes share the cores: the threads of their matrix products would wait for each other, minutes long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import functools
import gc
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import sqlalchemy as sa
from hypothesis import settings as hypothesis_settings
from pydantic import SecretStr
from xdist.scheduler import LoadFileScheduling

from evaluators.evaluator import SandboxEvaluator
from evaluators.evaluator_factory import open_evaluator
from speciate.embedded.servers import EmbeddedServers, Endpoints
from speciate.settings import Settings
from speciate.storage.database import connect
from speciate.storage.migrate import upgrade
from speciate.storage.stores import Stores, open_stores

# A busy machine is no failure.
hypothesis_settings.register_profile("untimed", deadline=None)
hypothesis_settings.load_profile("untimed")

# What a caller has these processes ignore (`nohup`, `&` in a script), programs under test would ignore, too, and never
# end. A handler does not pass to them.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

_TEMPLATE = "migrated"
_FAULTS = Path(__file__).parent / "integration"
_LONG = (
    "deploy/test_wheel.py",
    "unit/training/test_trainer.py",
    "unit/experiments/test_reproduction.py",
    "integration/cli/test_service.py",
    "integration/cli/test_rest.py",
    "dashboard/test_live.py",
    "dashboard/test_pages.py",
    "integration/service/test_described.py",
    "integration/service/test_isolation.py",
    "integration/service/test_hostile_requests.py",
    "deploy/test_topology.py",
    "integration/faults/test_learning.py",
    "integration/faults/test_storm.py",
    "integration/faults/test_tournaments.py",
    "integration/faults/test_up.py",
)
"""Files that take longest; read first, so that no worker begins one when the others have finished."""
_SYSTEM = (
    "dashboard",
    "deploy",
    "integration/observability",
    "integration/service/test_described.py",
    "integration/service/test_hostile_requests.py",
    "sandbox/test_images.py",
    "sandbox/test_neighbours.py",
    "unit/evaluators/test_environments.py",
)
"""Tests of the system from outside: by a browser, an installation, containers, requests, and candidates that kill."""


class _Scheduling(LoadFileScheduling):
    """Files as units, but the browser tests as two: each unit starts a service with sample runs and a Chromium."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        folder, _, name = file.rpartition("/")
        return folder if folder.endswith("dashboard") and name != "test_pages.py" else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests of `make test` and `make test-system`."""
    return _Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the tests that are not wanted."""
    match config.getoption("markexpr"):
        case "system":
            unwanted = collection_path.suffix == ".py" and not _is_system(collection_path)
        case str(expression):
            unwanted = "not system" in expression and _is_system(collection_path)
    return True if unwanted else None


@functools.cache
def _is_system(path: Path) -> bool:
    return any(path.is_relative_to(Path(__file__).parent / name) for name in _SYSTEM)


def pytest_collection() -> None:
    """Collect no garbage while thousands of tests are read, all of which stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Leave what has been read out of every later collection of garbage."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test-system` looks for tests that kill processes in one folder: all others take half a minute to read."""
    order = {Path(__file__).parent / name: i for i, name in enumerate(_LONG)}
    items.sort(key=lambda item: order.get(item.path, len(order)))
    for item in items:
        if _is_system(item.path):
            item.add_marker(pytest.mark.system)
        if item.get_closest_marker("fault") and _FAULTS not in item.path.parents:
            raise pytest.UsageError(f"{item.nodeid} is marked `fault`; such tests belong into {_FAULTS}.")


@pytest.fixture(scope="session")
def strongest() -> Iterator[SandboxEvaluator]:
    """A sandbox in the strongest tier that holds here."""
    with closing(open_evaluator()) as sandbox:
        yield sandbox


@pytest.fixture
def open_dir() -> Iterator[Path]:
    """A directory that PostgreSQL's account can reach; pytest's own are private to the user."""
    made = Path(tempfile.mkdtemp(prefix="speciate-test-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="session")
def servers() -> Iterator[Endpoints]:
    """PostgreSQL and Valkey, with a migrated database to copy."""
    home = Path(tempfile.mkdtemp(prefix="speciate-test-"))
    home.chmod(0o711)
    embedded = EmbeddedServers(home / "data")
    try:
        endpoints = embedded.start()
        with _connect(endpoints) as connection:
            # What survives a power cut is tried elsewhere; thousands of databases come and go here.
            for setting in ("fsync", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")
            # Every connection would hash the password 4,096 times, on both sides.
            url = sa.make_url(endpoints.database_url)
            connection.execute("SET scram_iterations = 1")
            connection.execute(f"ALTER ROLE {url.username} PASSWORD '{url.password}'")
            connection.execute(f"CREATE DATABASE {_TEMPLATE}")
        engine = connect(_url(endpoints, _TEMPLATE))
        upgrade(engine)
        engine.dispose()
        yield endpoints
    finally:
        embedded.stop()
        shutil.rmtree(home)


@pytest.fixture
def database_url(servers: Endpoints) -> Iterator[str]:
    """A migrated, empty database that only this test uses, whatever it does to its tables."""
    name = f"test_{id(object()):x}"
    _create(servers, name)
    yield _url(servers, name)
    _drop(servers, name)


@pytest.fixture(scope="session")
def kept_database(servers: Endpoints) -> Iterator[KeptDatabase]:
    """A database of this test worker, for tests that change rows only."""
    with closing(KeptDatabase(servers)) as kept:
        yield kept


_SCHEMA = """
SELECT
  (SELECT array_agg((oid, relname, relkind, relnatts) ORDER BY oid) FROM pg_class
   WHERE relnamespace = 'public'::regnamespace)::text,
  (SELECT array_agg(oid ORDER BY oid) FROM pg_constraint),
  (SELECT array_agg((oid, tgenabled) ORDER BY oid) FROM pg_trigger)::text,
  (SELECT array_agg(oid ORDER BY oid) FROM pg_type WHERE typnamespace = 'public'::regnamespace),
  (SELECT array_agg(oid ORDER BY oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace),
  (SELECT array_agg(setconfig::text) FROM pg_db_role_setting JOIN pg_database ON setdatabase = pg_database.oid
   WHERE datname = current_database())
"""


class KeptDatabase:
    """A migrated database that is emptied for each test: a third of what creating and dropping one costs.

    Attributes:
        url: Its URL.
    """

    def __init__(self, servers: Endpoints) -> None:
        self._servers, self._name = servers, f"kept_{os.getpid()}"
        self.url = _url(servers, self._name)
        self._open()

    def empty(self) -> None:
        """Restore the rows of a new database; create it again if a test changed its tables or ended this session."""
        try:
            restored = self._restore()
        except psycopg.OperationalError:
            restored = False
        if not restored:
            self.close()
            self._open()

    def _restore(self) -> bool:
        self._connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            " AND pid <> pg_backend_pid()"
        )
        if self._schema() != self._new_schema:
            return False
        self._connection.execute(self._emptying)
        for table, rows in self._rows.items():
            with self._connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                copy.write(rows)
        return True

    def close(self) -> None:
        """Drop the database."""
        self._connection.close()
        _drop(self._servers, self._name)

    def _open(self) -> None:
        _create(self._servers, self._name)
        self._connection = _connect(self._servers, self._name)
        # Neither triggers nor foreign keys are wanted while rows are restored.
        self._connection.execute("SET session_replication_role = replica")
        tables = [
            row[0] for row in self._connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        ]
        sequences = self._connection.execute("SELECT sequencename, start_value FROM pg_sequences").fetchall()
        self._emptying = ";".join(
            [*(f"DELETE FROM {table}" for table in tables)]
            + [f"SELECT setval('{name}', {start}, false)" for name, start in sequences]
        )
        self._rows = {table: rows for table in tables if (rows := self._read(table))}
        self._new_schema = self._schema()

    def _read(self, table: str) -> bytes:
        with self._connection.cursor().copy(f"COPY {table} TO STDOUT") as copy:
            return b"".join(copy)

    def _schema(self) -> object:
        """Return what differs when a table, column, index, constraint, trigger, type or setting has been changed."""
        return self._connection.execute(_SCHEMA).fetchone()


@pytest.fixture
def redis_url(servers: Endpoints) -> str:
    """The Valkey server, emptied."""
    with redis.Redis.from_url(servers.redis_url) as client:
        client.flushall()
    return servers.redis_url


@pytest.fixture
def settings(kept_database: KeptDatabase, redis_url: str, tmp_path: Path) -> Settings:
    """Settings that lead to this test's servers."""
    kept_database.empty()
    return Settings(
        database_url=SecretStr(kept_database.url),
        redis_url=SecretStr(redis_url),
        data_dir=tmp_path,
        secret_key=SecretStr("a secret key of tests that is long enough"),
        allowed_networks=("loopback",),
    )


@pytest.fixture
def stores(settings: Settings) -> Iterator[Stores]:
    """The stores on this test's servers."""
    opened = open_stores(settings)
    yield opened
    opened.close()


def _url(endpoints: Endpoints, database: str) -> str:
    return sa.make_url(endpoints.database_url).set(database=database).render_as_string(hide_password=False)


def _create(endpoints: Endpoints, name: str) -> None:
    with _connect(endpoints) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY file_copy")


def _drop(endpoints: Endpoints, name: str) -> None:
    with _connect(endpoints) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _connect(endpoints: Endpoints, database: str = "postgres") -> psycopg.Connection:
    url = sa.make_url(endpoints.database_url).set(drivername="postgresql", database=database)
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)
