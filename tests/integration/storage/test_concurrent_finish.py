"""Finish a work unit while another transaction holds its run."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from uuid import uuid4

import pytest
import sqlalchemy as sa

from speciate.ports.runs import NewRun
from speciate.ports.work import Commit, Lease
from speciate.schema.policies import RunPolicies
from speciate.storage.runs.locking import lock_progress
from speciate.storage.stores import Stores
from tests.support.runs import toy_policy, toy_problem, toy_spec

pytestmark = pytest.mark.servers


def _lease(stores: Stores) -> Lease:
    stored, _ = stores.catalog.add_problem(toy_problem())
    policy, _ = stores.catalog.add_policy(toy_policy())
    run_id, _ = stores.runs.create(NewRun(stored, RunPolicies(policy), toy_spec()))
    lease = stores.work.claim(stores.runs.start(run_id).dispatch[0].id)
    assert lease is not None
    return lease


def _finish_during(stores: Stores, lease: Lease, change: str, **values: object) -> Commit | None:
    """Finish a unit while a transaction that changes the run holds its lock."""
    with ThreadPoolExecutor(1) as threads:
        with stores.engine.begin() as connection:
            lock_progress(connection, lease.run_id)
            finishing: Future[Commit | None] = threads.submit(stores.work.end_lane, lease)
            _wait_until_blocked(stores)
            connection.execute(sa.text(change), {"run_id": lease.run_id, "id": lease.work_id, **values})
        return finishing.result(timeout=60)


def _wait_until_blocked(stores: Stores) -> None:
    query = sa.text(
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    )
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with stores.engine.connect() as connection:
            if connection.execute(query).scalar_one():
                return
        time.sleep(0.01)
    raise AssertionError("no transaction waits for the lock")


def test_a_lease_taken_over_meanwhile_is_lost(stores: Stores) -> None:
    lease = _lease(stores)
    assert _finish_during(stores, lease, "UPDATE work SET lease_token = :token WHERE id = :id", token=uuid4()) is None


def test_work_cancelled_meanwhile_stays_cancelled(stores: Stores) -> None:
    lease = _lease(stores)
    assert _finish_during(stores, lease, "UPDATE work SET state = 'cancelled' WHERE id = :id") is None
    with stores.engine.connect() as connection:
        query = sa.text("SELECT state FROM work WHERE id = :id")
        assert connection.execute(query, {"id": lease.work_id}).scalar_one() == "cancelled"


def test_counters_changed_meanwhile_are_not_overwritten(stores: Stores) -> None:
    lease = _lease(stores)
    commit = _finish_during(stores, lease, "UPDATE run_progress SET rollouts = rollouts + 7 WHERE run_id = :run_id")
    assert commit is not None
    with stores.engine.connect() as connection:
        query = sa.text("SELECT rollouts FROM run_progress WHERE run_id = :run_id")
        assert connection.execute(query, {"run_id": lease.run_id}).scalar_one() == 7
