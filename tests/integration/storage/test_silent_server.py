"""A PostgreSQL that does not answer: frozen processes and networks that swallow packets."""

from __future__ import annotations

import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import sqlalchemy as sa

from speciate.domain.errors import UnavailableError
from speciate.storage import database
from speciate.storage.database import Store, connect, reading, with_retries
from tests.support.relay import Relay, relay

pytestmark = pytest.mark.servers

STATEMENT_S = 0.2
LIMIT_S = 20.0


class Asked(Store):
    @with_retries
    def session(self) -> int:
        """Return the process id of the server's session."""
        with reading(self._engine) as connection:
            return int(connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())


@contextmanager
def ends_anyway(end: Callable[[], object]) -> Iterator[None]:
    """End a silence with the block, and after a while even if the block waits for it."""
    timer = threading.Timer(LIMIT_S, end)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        end()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "_GRACE_S", 0.3)


@pytest.fixture
def network(database_url: str) -> Iterator[tuple[Relay, str]]:
    """A relay to the server, and the database's URL through it."""
    url = sa.make_url(database_url)
    with relay(f"{url.query['host']}/.s.PGSQL.{url.port or 5432}") as made:
        through = url.set(host="127.0.0.1", port=made.port, query={})
        yield made, through.render_as_string(hide_password=False)


@pytest.mark.usefixtures("impatient")
def test_a_frozen_session_is_given_up_and_the_call_repeated_in_another(database_url: str) -> None:
    engine = connect(database_url, statement_s=STATEMENT_S)
    store = Asked(engine)
    frozen = store.session()
    os.kill(frozen, signal.SIGSTOP)
    with ends_anyway(lambda: os.kill(frozen, signal.SIGCONT)):
        assert store.session() != frozen
    assert engine.pool.checkedout() == 0  # type: ignore[attr-defined]
    engine.dispose()


@pytest.mark.usefixtures("impatient")
def test_a_silent_network_is_an_outage_that_ends(network: tuple[Relay, str]) -> None:
    line, url = network
    engine = connect(f"{url}?connect_timeout=2", statement_s=STATEMENT_S)
    store = Asked(engine, retry_for_s=0.1)
    first = store.session()
    line.silent.set()
    with ends_anyway(line.silent.clear), pytest.raises(UnavailableError, match=r"no answer within 0\.5 s"):
        store.session()
    assert store.session() != first
    engine.dispose()


def test_a_slow_network_that_splits_messages_changes_no_answer(network: tuple[Relay, str]) -> None:
    line, url = network
    line.delay_s, line.piece_bytes = 0.0005, 7
    engine = connect(url, statement_s=60)
    with reading(engine) as connection:
        assert connection.execute(sa.text("SELECT repeat('ab', 500)")).scalar_one() == "ab" * 500
    engine.dispose()


def test_a_vanished_host_is_noticed(network: tuple[Relay, str]) -> None:
    engine = connect(f"{network[1]}?keepalives_count=4")
    with engine.connect() as connection:
        socket_of = socket.socket(fileno=os.dup(connection.connection.driver_connection.fileno()))  # type: ignore[union-attr]
        with socket_of as held:
            assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
            assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
            assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 4  # the URL decides
    engine.dispose()
