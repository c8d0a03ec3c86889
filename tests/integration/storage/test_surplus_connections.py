"""Connections that a process does not need are closed; those that it uses stay open."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import sqlalchemy as sa

from speciate.storage.database import SurplusConnections
from speciate.storage.stores import Stores

pytestmark = pytest.mark.servers


def _use(engine: sa.Engine, at_once: int) -> set[int]:
    """Return the sessions of a number of connections that are in use at the same time."""
    with ExitStack() as opened:
        connections = [opened.enter_context(engine.connect()) for _ in range(at_once)]
        return {int(each.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()) for each in connections}


def test_only_the_connections_of_a_peak_are_closed(stores: Stores) -> None:
    engine = stores.engine
    surplus = SurplusConnections(engine)
    peak = _use(engine, 5)
    surplus.close()
    assert _use(engine, 2) < peak, "the pool was that large because all were needed"
    surplus.close()
    usual = _use(engine, 2)
    assert not usual & peak
    surplus.close()
    assert _use(engine, 2) == usual, "two were needed"
    with engine.connect() as connection:
        surplus.close()
        surplus.close()
        assert connection.execute(sa.text("SELECT 1")).scalar_one() == 1
    surplus.close()
    assert engine.pool.checkedin() == 0  # type: ignore[attr-defined]


def test_a_connection_in_use_is_closed_with_its_stores(stores: Stores) -> None:
    (surplus,) = stores.surplus
    sessions = _use(stores.engine, 2)
    surplus.close()
    with stores.engine.connect() as connection:
        own = connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one()
        surplus.close()
    assert own in sessions
    stores.close()
    left = sa.text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
    with stores.engine.connect() as connection:
        assert connection.execute(left, {"pid": own}).scalar_one() == 0
    stores.engine.dispose()
