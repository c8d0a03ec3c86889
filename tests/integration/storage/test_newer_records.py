"""Older processes pause a run that a newer version wrote, and keep processing others."""

from __future__ import annotations

from uuid import UUID

import pytest
import sqlalchemy as sa

from speciate.domain.budget import Budget
from speciate.domain.errors import NewerRecordError
from speciate.domain.run import RunState
from speciate.policies import build_client
from speciate.ports.runs import NewRun
from speciate.ports.work import Commit
from speciate.runs.executor import LocalQueue, WorkExecutor
from speciate.schema.policies import RunPolicies
from speciate.storage.stores import Stores
from speciate.storage.work.fairness import FairQueue
from tests.integration.storage.test_fair_queue import another_evaluation
from tests.support.runs import ToyEvaluator, toy_policy, toy_problem, toy_spec

pytestmark = pytest.mark.servers


def _begin(stores: Stores, **spec: object) -> Commit:
    problem, _ = stores.catalog.add_problem(toy_problem())
    policy, _ = stores.catalog.add_policy(toy_policy())
    run_id, _ = stores.runs.create(NewRun(problem, RunPolicies(policy), toy_spec(**spec)))
    return stores.runs.start(run_id)


def _add_newer_field(stores: Stores, run_id: UUID) -> None:
    with stores.engine.begin() as connection:
        newer = 'UPDATE runs SET spec = spec || \'{"tomorrow": "secret"}\' WHERE id = :id'
        connection.execute(sa.text(newer), {"id": run_id})


def _remove_newer_field(stores: Stores, run_id: UUID) -> None:
    with stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE runs SET spec = spec - 'tomorrow' WHERE id = :id"), {"id": run_id})


def test_an_older_worker_pauses_the_run_with_a_reason_and_a_newer_one_continues(stores: Stores) -> None:
    commit = _begin(stores)
    _add_newer_field(stores, commit.run_id)
    executor = WorkExecutor(stores.work, LocalQueue(), ToyEvaluator(), build_client)
    (unit,) = commit.dispatch
    assert executor.execute(unit.id)
    with pytest.raises(NewerRecordError, match="tomorrow") as raised:
        stores.runs.get(commit.run_id)
    assert "secret" not in str(raised.value)
    _remove_newer_field(stores, commit.run_id)
    run = stores.runs.get(commit.run_id)
    assert run.state is RunState.PAUSED
    assert run.reason is not None
    assert "restart this process with that version" in run.reason
    assert "tomorrow" in run.reason
    assert run.spent.evaluations == 0
    stores.runs.resume(commit.run_id)
    assert executor.execute(unit.id)
    assert stores.runs.get(commit.run_id).state is RunState.RUNNING


def test_an_unreadable_run_does_not_keep_others_from_ending(stores: Stores) -> None:
    overdue = Budget(evaluations=100, seconds=1)
    runs = [_begin(stores, budget=overdue).run_id for _ in range(3)]
    _add_newer_field(stores, runs[1])
    with stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE run_progress SET seconds = 5"))
    stores.work.reconcile()
    _remove_newer_field(stores, runs[1])
    states = [stores.runs.get(run_id).state for run_id in runs]
    assert states == [RunState.COMPLETED, RunState.RUNNING, RunState.COMPLETED]
    stores.work.reconcile()
    assert stores.runs.get(runs[1]).state is RunState.COMPLETED


def test_an_unreadable_run_does_not_keep_others_from_their_evaluations(stores: Stores) -> None:
    newer, other = _begin(stores), _begin(stores)
    _add_newer_field(stores, newer.run_id)
    queue = FairQueue(stores.engine, can=lambda run_id: bool(stores.work.context(run_id).problem))
    assert stores.work.claim(other.dispatch[0].id) is not None
    # Its execution, which comes first, pauses it.
    assert queue.choose(another_evaluation(stores, other.run_id)) == newer.dispatch[0].id


def test_an_unreadable_run_does_not_keep_others_from_their_engine(stores: Stores) -> None:
    newer, other = _begin(stores, engine="mine"), _begin(stores, engine="mine")
    _add_newer_field(stores, newer.run_id)
    session, _ = stores.engines.acquire(holder="test", lease_s=60, versions={})
    assert session is not None
    assert session.run_id == other.run_id
