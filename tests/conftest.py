"""Real servers: one pair per test worker, one database per test."""

from __future__ import annotations

import os

# Several test processes share the cores: the threads of their matrix products would wait for each other, minutes long.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
import redis
import sqlalchemy as sa
from pydantic import SecretStr

from evaluators.broker import Broker
from evaluators.broker_factory import open_broker
from speciate.embedded import EmbeddedServers, Endpoints
from speciate.settings import Settings
from speciate.storage.database import connect
from speciate.storage.migrate import upgrade
from speciate.storage.stores import Stores, open_stores

_TEMPLATE = "migrated"
_FAULTS = Path(__file__).parent / "integration"
_LONG = (
    "deploy/test_wheel.py",
    "unit/training/test_trainer.py",
    "integration/service/test_described.py",
    "integration/service/test_isolation.py",
    "integration/service/test_hostile_requests.py",
    "deploy/test_topology.py",
)
"""Files that take longest; read first, so that no worker begins one when the others have finished."""
_TORCH = ("unit/training", "unit/inference", "unit/experiments/test_reproduction.py")
"""Tests that import torch, which takes every worker seconds."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the tests marked `torch` when they are not wanted."""
    unwanted = "not torch" in config.getoption("markexpr") and _imports_torch(collection_path)
    return True if unwanted else None


def _imports_torch(path: Path) -> bool:
    return any(path.is_relative_to(Path(__file__).parent / name) for name in _TORCH)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` looks for the tests that kill processes in one folder: all the others take half a minute to read."""
    order = {Path(__file__).parent / name: i for i, name in enumerate(_LONG)}
    items.sort(key=lambda item: order.get(item.path, len(order)))
    for item in items:
        if _imports_torch(item.path):
            item.add_marker(pytest.mark.torch)
        if item.get_closest_marker("fault") and _FAULTS not in item.path.parents:
            raise pytest.UsageError(f"{item.nodeid} is marked `fault`; such tests belong into {_FAULTS}.")


@pytest.fixture(scope="session")
def strongest() -> Iterator[Broker]:
    """A broker in the strongest tier that holds here."""
    with closing(open_broker()) as broker:
        yield broker


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
        with _admin(endpoints) as connection:
            # What survives a power cut is tried elsewhere; thousands of databases come and go here.
            for setting in ("fsync", "full_page_writes"):
                connection.execute(f"ALTER SYSTEM SET {setting} = off")
            connection.execute("SELECT pg_reload_conf()")
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
    """A migrated, empty database that only this test uses."""
    name = f"test_{id(object()):x}"
    with _admin(servers) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE} STRATEGY file_copy")
    yield _url(servers, name)
    with _admin(servers) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def redis_url(servers: Endpoints) -> str:
    """The Valkey server, emptied."""
    with redis.Redis.from_url(servers.redis_url) as client:
        client.flushall()
    return servers.redis_url


@pytest.fixture
def settings(database_url: str, redis_url: str, tmp_path: Path) -> Settings:
    """Settings that lead to this test's servers."""
    return Settings(
        database_url=SecretStr(database_url),
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


def _admin(endpoints: Endpoints) -> psycopg.Connection:
    url = sa.make_url(endpoints.database_url).set(drivername="postgresql", database="postgres")
    return psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)
