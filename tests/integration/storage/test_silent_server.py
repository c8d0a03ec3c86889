"""A host of PostgreSQL that vanishes without closing its connections."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from speciate.storage.database import connect
from tests.support.relay import Relay, relay

pytestmark = pytest.mark.servers


@pytest.fixture
def network(database_url: str) -> Iterator[tuple[Relay, str]]:
    """A relay to the server, and the database's URL through it."""
    url = sa.make_url(database_url)
    with relay(f"{url.query['host']}/.s.PGSQL.{url.port or 5432}") as made:
        through = url.set(host="127.0.0.1", port=made.port, query={})
        yield made, through.render_as_string(hide_password=False)


def test_a_vanished_host_is_noticed(network: tuple[Relay, str]) -> None:
    engine = connect(f"{network[1]}?keepalives_count=4")
    with engine.connect() as connection:
        socket_of = socket.socket(fileno=os.dup(connection.connection.driver_connection.fileno()))  # type: ignore[union-attr]
        with socket_of as held:
            assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 30_000
            assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 10
            assert held.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT) == 4  # the URL decides
    engine.dispose()
