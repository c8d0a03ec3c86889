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
