"""Connections that are not in use are closed, and those in use when they return."""

from __future__ import annotations

import psycopg
import pytest
import sqlalchemy as sa

from speciate.storage.stores import Stores

pytestmark = pytest.mark.servers


def test_a_connection_in_use_is_closed_when_it_returns(stores: Stores) -> None:
    with stores.engine.connect() as connection:
        used = connection.connection.dbapi_connection
        assert isinstance(used, psycopg.Connection)
        stores.close_unused()
        assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1
        assert not used.closed
    assert used.closed
    with stores.engine.connect() as connection:
        later = connection.connection.dbapi_connection
        assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1
    assert isinstance(later, psycopg.Connection)
    assert not later.closed
