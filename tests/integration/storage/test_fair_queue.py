"""Runs share evaluation slots: one run of slow evaluations beside many runs of fast ones."""

from __future__ import annotations

from uuid import UUID

import pytest
import sqlalchemy as sa

from speciate.domain.candidate import Candidate, Evaluation
from speciate.domain.policy import EXTERNAL_POLICY
from speciate.ports.runs import NewRun
from speciate.ports.work import EvaluatedBatch, WorkKind, WorkRef
from speciate.runs.payloads import read_proposals
from speciate.schema.policies import RunPolicies
from speciate.storage.database import connect, reading
from speciate.storage.stores import Stores
from speciate.storage.work.fairness import LONG_S, FairQueue
from tests.support.runs import toy_policy, toy_problem, toy_spec

pytestmark = pytest.mark.servers


def _begin(stores: Stores, cores: int = 1) -> tuple[UUID, WorkRef]:
    """Start a run and return it with its first evaluation, which is ready."""
    problem = toy_problem()
    limits = problem.limits.model_copy(update={"cores": cores})
    stored, _ = stores.catalog.add_problem(problem.model_copy(update={"limits": limits}))
    policy, _ = stores.catalog.add_policy(toy_policy())
    run_id, _ = stores.runs.create(NewRun(stored, RunPolicies(policy), toy_spec()))
    (ref,) = (ref for ref in stores.runs.start(run_id).dispatch if ref.kind is WorkKind.EVALUATE)
    return run_id, ref


def another_evaluation(stores: Stores, run_id: UUID) -> UUID:
    """Add a ready evaluation to a run."""
    with stores.engine.begin() as connection:
        return connection.execute(
            sa.text(
                "INSERT INTO work (id, run_id, kind, state, lane, ordinal, payload, dispatched_at)"
                " SELECT gen_random_uuid(), run_id, kind, 'ready', lane, ordinal + 1000, payload, clock_timestamp()"
                " FROM work WHERE run_id = :run_id AND kind = 'evaluate' LIMIT 1 RETURNING id"
            ),
            {"run_id": run_id},
        ).scalar_one()


def _evaluate(stores: Stores, work_id: UUID, wall_s: float) -> None:
    lease = stores.work.claim(work_id)
    assert lease is not None
    outcome = Candidate(lease.payload["first"], read_proposals(lease.payload)[0], Evaluation((1.0, 9.0), wall_s=wall_s))
    assert stores.work.commit_evaluations(lease, EvaluatedBatch((outcome,))) is not None


def test_the_run_with_the_fewest_evaluations_is_next(stores: Stores) -> None:
    queue = FairQueue(stores.engine, slots=lambda: 8)
    busy, first = _begin(stores)
    assert queue.choose(first.id) == first.id
    assert stores.work.claim(first.id) is not None
    second = another_evaluation(stores, busy)
    assert queue.choose(second) == second
    _, waiting = _begin(stores)
    assert queue.choose(second) == waiting.id
    assert stores.work.claim(waiting.id) is not None
    assert queue.choose(second) == second  # both hold one


def test_choosing_keeps_the_prepared_statements_of_its_connection(database_url: str, stores: Stores) -> None:
    _, ready = _begin(stores)
    engine = connect(database_url, pool_size=1)
    queue = FairQueue(engine, slots=lambda: 8)
    for _ in range(8):
        queue.choose(ready.id)
    prepared = sa.text("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'WITH leased%'")
    with reading(engine) as connection:
        assert connection.execute(prepared).scalar_one() == 1
    engine.dispose()


def test_an_evaluation_holds_a_slot_for_each_core(stores: Stores) -> None:
    queue = FairQueue(stores.engine, slots=lambda: 8)
    wide, first = _begin(stores, cores=2)
    narrow, second = _begin(stores)
    assert stores.work.claim(first.id) is not None
    assert stores.work.claim(second.id) is not None
    waiting = another_evaluation(stores, wide)
    assert queue.choose(waiting) == waiting
    assert queue.choose(another_evaluation(stores, narrow)) != waiting
    assert queue.choose(waiting) != waiting  # two slots against one


def test_a_unit_that_is_no_evaluation_or_not_ready_is_left_to_the_claim(stores: Stores) -> None:
    queue = FairQueue(stores.engine, slots=lambda: 8)
    _, ref = _begin(stores)
    assert stores.work.claim(ref.id) is not None
    assert queue.choose(ref.id) == ref.id


@pytest.mark.parametrize("wall_s", [0.01, 600.0])
def test_slow_evaluations_leave_one_slot_to_runs_that_hold_none(stores: Stores, wall_s: float) -> None:
    """Two slots: a run with an evaluation under way, and twelve runs of which none is ready at this moment."""
    queue = FairQueue(stores.engine, slots=lambda: 2)
    run_id, seed = _begin(stores)
    _evaluate(stores, seed.id, wall_s)
    under_way, second = another_evaluation(stores, run_id), another_evaluation(stores, run_id)
    assert stores.work.claim(under_way) is not None
    others = [_begin(stores) for _ in range(12)]
    _announce(stores, others, "NULL")
    assert queue.choose(second) == (None if wall_s > LONG_S else second)
    _announce(stores, others, "now()")
    for _ in others:  # each finds the free slot
        chosen = queue.choose(second)
        assert chosen in {ref.id for _, ref in others}
        _evaluate(stores, chosen, 0.01)
    for other, _ in others:
        stores.runs.cancel(other, "done")
    assert queue.choose(second) == second  # nothing else runs


def _announce(stores: Stores, runs: list[tuple[UUID, WorkRef]], when: str) -> None:
    with stores.engine.begin() as connection:
        ids = {"ids": [ref.id for _, ref in runs]}
        connection.execute(sa.text(f"UPDATE work SET dispatched_at = {when} WHERE id = ANY(:ids)"), ids)


def test_a_run_that_waits_for_proposals_takes_no_slot_from_slow_evaluations(stores: Stores) -> None:
    queue = FairQueue(stores.engine, slots=lambda: 2)
    run_id, seed = _begin(stores)
    _evaluate(stores, seed.id, LONG_S * 2)
    under_way, second = another_evaluation(stores, run_id), another_evaluation(stores, run_id)
    assert stores.work.claim(under_way) is not None
    problem, _ = stores.catalog.add_problem(toy_problem(seed_program=""))
    policy, _ = stores.catalog.add_policy(EXTERNAL_POLICY)
    waiting, _ = stores.runs.create(NewRun(problem, RunPolicies(policy), toy_spec()))
    stores.runs.start(waiting)
    assert queue.choose(second) == second
