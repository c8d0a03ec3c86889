"""A pool process that replaces a lost one shares no database connection with the main process of its worker."""

from __future__ import annotations

import functools
import os

import pytest
import sqlalchemy as sa

from speciate.storage.stores import Stores
from workers import composition

pytestmark = pytest.mark.servers


def _session(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return int(connection.execute(sa.text("SELECT pg_backend_pid()")).scalar_one())


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_replaced_pool_process_has_a_session_of_its_own(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(composition, "stores", functools.cache(lambda: stores))
    composition.stores()
    engine = stores.engine
    own = _session(engine)
    assert _session(engine) == own, "the pool keeps the session"
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            composition.leave_connections()
            os.write(writer, str(_session(engine)).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as answer:
        inherited = answer.read()
    os.waitpid(child, 0)
    assert inherited.isdecimal()
    assert int(inherited) != own
    assert _session(engine) == own, "the child has not closed it"
