"""The reconciler recovers from silent workers, lost messages and poisoned work."""

from __future__ import annotations

import time
from uuid import UUID

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from speciate.domain.candidate import Candidate, Evaluation
from speciate.domain.event import EventKind
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.ports.runs import NewRun
from speciate.ports.work import Commit, Confirmation, EvaluatedBatch, Lease, ProposedBatch, Queue, WorkKind
from speciate.runs.payloads import read_proposals
from speciate.schema.policies import RunPolicies
from speciate.storage.access import quotas
from speciate.storage.runs.locking import lock_progress
from speciate.storage.stores import Stores
from speciate.storage.work.reconciler import SQL, beat, exclude_downtime
from tests.support.http_server import wait_for
from tests.support.runs import toy_policy, toy_problem, toy_proposals, toy_rollout, toy_spec
from workers.reconciler import leadership

pytestmark = pytest.mark.servers


def _begin(stores: Stores, spec: RunSpec | None = None, problem: Problem | None = None) -> Commit:
    stored, _ = stores.catalog.add_problem(problem or toy_problem())
    policy, _ = stores.catalog.add_policy(toy_policy())
    run_id, _ = stores.runs.create(NewRun(stored, RunPolicies(policy), spec or toy_spec()))
    return stores.runs.start(run_id)


def _claim(stores: Stores, work_id: UUID) -> Lease:
    lease = stores.work.claim(work_id)
    assert lease is not None
    return lease


def _let_leases_expire(stores: Stores) -> None:
    with stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE work SET lease_until = now() - interval '1 second' WHERE state = 'leased'"))


def _lose(stores: Stores, work_id: UUID) -> None:
    _claim(stores, work_id)
    _let_leases_expire(stores)
    stores.work.reconcile()


def test_expired_work_is_retried_on_its_own_queue(stores: Stores) -> None:
    ref = _begin(stores).dispatch[0]
    first = _claim(stores, ref.id)
    assert stores.work.reconcile().retried == 0
    _let_leases_expire(stores)
    report = stores.work.reconcile()
    assert report.retried == 1
    (again,) = (ref for commit in report.commits for ref in commit.dispatch)
    assert (again.id, again.queue) == (ref.id, Queue.RETRY)
    second = _claim(stores, ref.id)
    assert (second.attempt, second.payload) == (2, first.payload)
    assert not stores.work.extend(first)
    assert stores.work.extend(second)


def test_released_work_returns_to_the_ordinary_queue_at_once_and_is_never_poisoned(stores: Stores) -> None:
    commit = _begin(stores)
    ref = commit.dispatch[0]
    for _ in range(5):
        lease = _claim(stores, ref.id)
        assert lease.attempt == 1
        assert stores.work.expire_leases([lease]) == 1
        report = stores.work.reconcile()
        assert (len(report.commits[0].dispatch), report.retried, report.poisoned) == (1, 0, 0)
        assert [again for commit in report.commits for again in commit.dispatch] == [ref]
    assert stores.work.expire_leases([lease]) == 0  # no longer held
    finished = _claim(stores, ref.id)
    outcome = Candidate(
        finished.payload["first"], read_proposals(finished.payload)[0], Evaluation((1.0, 9.0), environment="e" * 64)
    )
    assert stores.work.commit_evaluations(lease, EvaluatedBatch((outcome,))) is None
    assert stores.work.commit_evaluations(finished, EvaluatedBatch((outcome,))) is not None
    assert stores.runs.get(commit.run_id).spent.evaluations == 1
    assert stores.queries.candidate_of(commit.run_id, 1).environment == "e" * 64


def test_a_heartbeat_after_the_release_does_not_renew_the_lease(stores: Stores) -> None:
    lease = _claim(stores, _begin(stores).dispatch[0].id)
    assert stores.work.expire_leases([lease]) == 1
    assert not stores.work.extend(lease)
    assert stores.work.reconcile().commits[0].dispatch


def test_periodic_queries_do_not_scan_ended_runs(stores: Stores) -> None:
    with stores.engine.begin() as connection:
        connection.execute(sa.text("SET LOCAL enable_seqscan = off"))
        keys = {"id": UUID(int=0), "runs": None}
        for query in (SQL.overdue, quotas.SQL.runs_under_way):
            plan = connection.execute(sa.text(f"EXPLAIN {query.text}"), keys).scalars().all()
            assert "ix_run_progress_unended" in "\n".join(plan)


def test_tokens_of_a_lost_request_count_as_spent(stores: Stores) -> None:
    commit = _begin(stores, toy_spec(budget={"tokens": 100}), toy_problem(seed_program=""))
    lease = _claim(stores, commit.dispatch[0].id)
    assert stores.work.reserve_tokens(lease, 70)
    _let_leases_expire(stores)
    stores.work.reconcile()
    with stores.engine.begin() as connection:
        progress = lock_progress(connection, lease.run_id).progress
    assert (progress.tokens, progress.reserved_tokens) == (70, 0)
    assert stores.work.reserve_tokens(_claim(stores, lease.work_id), 31) is False


def test_an_evaluation_that_loses_its_worker_three_times_fails_its_candidates(stores: Stores) -> None:
    commit = _begin(stores)
    for _ in range(3):
        _lose(stores, commit.dispatch[0].id)
    run = stores.runs.get(commit.run_id)
    assert (run.failures, run.reasons, run.spent.evaluations) == ({"crashed": 1}, {"worker_lost": 1}, 1)
    assert run.state.value == "paused"
    assert run.diagnosis is not None
    assert (run.diagnosis.fault, run.diagnosis.reason) == ("evaluator", "worker_lost")
    assert "kernel log" in run.diagnosis.remedy


def test_a_generation_that_loses_its_worker_three_times_pauses_the_run(stores: Stores) -> None:
    commit = _begin(stores, problem=toy_problem(seed_program=""))
    for _ in range(3):
        _lose(stores, commit.dispatch[0].id)
    run = stores.runs.get(commit.run_id)
    assert run.state.value == "paused"
    assert run.reason is not None
    assert "lost its worker 3 times" in run.reason
    resumed = stores.runs.resume(commit.run_id)
    assert [ref.kind for ref in resumed.dispatch] == [WorkKind.GENERATE]
    kinds = [event.kind for event in stores.queries.events(commit.run_id)]
    assert kinds.count(EventKind.WORK_RETRIED) == 2
    assert kinds.count(EventKind.WORK_POISONED) == 1


def test_a_clock_that_is_set_back_gives_no_time_back(stores: Stores) -> None:
    run_id = _begin(stores, toy_spec(budget={"seconds": 60})).run_id
    with stores.engine.begin() as connection:  # as after the clock was set back by an hour
        connection.execute(sa.text("UPDATE run_progress SET running_since = clock_timestamp() + interval '1 hour'"))
    assert stores.runs.get(run_id).spent.seconds == 0
    stores.runs.pause(run_id)
    assert (stores.runs.get(run_id).spent.seconds, stores.work.seconds_left(run_id)) == (0, 60)


def test_a_confirmation_that_keeps_losing_its_worker_pauses_and_refutes_nothing(stores: Stores) -> None:
    commit = _begin(stores, problem=toy_problem(seed_program=""))
    lease = _claim(stores, commit.dispatch[0].id)
    proposed = stores.work.commit_proposals(lease, ProposedBatch((toy_rollout(),), toy_proposals("x = 6\ny = 9\n")))
    assert proposed is not None
    lease = _claim(stores, proposed.dispatch[0].id)
    outcome = Candidate(
        lease.payload["first"], read_proposals(lease.payload)[0], Evaluation(rewards=(6.0, 9.0)), targets=1
    )
    claimed = stores.work.commit_evaluations(lease, EvaluatedBatch((outcome,)))
    assert claimed is not None
    assert claimed.dispatch[0].kind is WorkKind.CONFIRM
    for _ in range(3):
        _lose(stores, claimed.dispatch[0].id)
    run = stores.runs.get(commit.run_id)
    assert (run.state.value, run.reached) == ("paused", ())
    again = stores.runs.resume(commit.run_id).dispatch
    assert [(ref.id, ref.kind) for ref in again] == [(claimed.dispatch[0].id, WorkKind.CONFIRM)]
    confirmed = stores.work.commit_confirmation(_claim(stores, again[0].id), Confirmation(1, [0]))
    assert confirmed is not None
    assert stores.runs.get(commit.run_id).reached == ("half",)


def test_a_lost_message_is_sent_again_with_backoff(stores: Stores) -> None:
    commit = _begin(stores)
    assert stores.work.reconcile().resent == 0
    for expected in (2, 4, 8):
        _age_messages(stores, expected - 0.5)
        assert stores.work.reconcile().resent == 0
        _age_messages(stores, expected + 0.5)
        report = stores.work.reconcile()
        assert [ref.id for c in report.commits for ref in c.dispatch] == [commit.dispatch[0].id]


def _age_messages(stores: Stores, seconds: float) -> None:
    with stores.engine.begin() as connection:
        statement = sa.text("UPDATE work SET dispatched_at = clock_timestamp() - make_interval(secs => :s)")
        connection.execute(statement, {"s": seconds})


def test_messages_of_a_paused_run_are_not_resent(stores: Stores) -> None:
    commit = _begin(stores)
    stores.runs.pause(commit.run_id)
    _age_messages(stores, 100)
    assert stores.work.reconcile().resent == 0


def test_a_message_that_was_sent_a_thousand_times_is_sent_again(stores: Stores) -> None:
    _begin(stores)
    with stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE work SET resends = 1023"))
    _age_messages(stores, 65)
    assert stores.work.reconcile().resent == 1


def test_downtime_is_not_charged(stores: Stores) -> None:
    commit = _begin(stores, toy_spec(budget={"seconds": 600}))
    with stores.engine.begin() as connection:
        beat(connection)
    assert exclude_downtime(stores.engine) == 0
    with stores.engine.begin() as connection:
        # The run ran for 20 seconds, then the service stopped for an hour.
        connection.execute(sa.text("UPDATE reconciler SET alive_at = now() - interval '1 hour'"))
        connection.execute(sa.text("UPDATE run_progress SET running_since = now() - interval '3620 seconds'"))
    assert exclude_downtime(stores.engine) == 1
    stores.work.reconcile()
    run = stores.runs.get(commit.run_id)
    assert run.state.value == "running"
    assert 19 < run.spent.seconds < 40


def test_a_commit_right_after_a_sleep_does_not_charge_it(stores: Stores) -> None:
    commit = _begin(stores, toy_spec(budget={"seconds": 600}))
    lease = _claim(stores, commit.dispatch[0].id)
    with stores.engine.begin() as connection:
        beat(connection)
        connection.execute(sa.text("UPDATE reconciler SET alive_at = now() - interval '1 day'"))
        connection.execute(sa.text("UPDATE run_progress SET running_since = now() - interval '1 day'"))
    (proposal,) = read_proposals(lease.payload)
    outcome = Candidate(lease.payload["first"], proposal, Evaluation(rewards=(1.0, 1.0)), targets=0)
    assert stores.work.commit_evaluations(lease, EvaluatedBatch((outcome,))) is not None
    run = stores.runs.get(commit.run_id)
    assert (run.state.value, run.spent.seconds < 60) == ("running", True)


def test_a_local_process_does_not_charge_the_runs_of_a_stopped_service(stores: Stores) -> None:
    commit = _begin(stores, toy_spec(budget={"seconds": 600}))
    with stores.engine.begin() as connection:
        beat(connection)
        connection.execute(sa.text("UPDATE reconciler SET alive_at = now() - interval '2 hours'"))
        connection.execute(sa.text("UPDATE run_progress SET running_since = now() - interval '121 minutes'"))
        beat(connection, local=True)
    assert exclude_downtime(stores.engine, []) == 0
    assert exclude_downtime(stores.engine) == 1
    stores.work.reconcile()
    assert stores.runs.get(commit.run_id).state.value == "running"


def test_a_service_charges_a_killed_command_until_its_last_sign_of_life(stores: Stores) -> None:
    commit = _begin(stores, toy_spec(budget={"seconds": 7200}))
    with stores.engine.begin() as connection:
        beat(connection, local=True)
        connection.execute(sa.text("UPDATE reconciler SET alive_at = now() - interval '1 hour'"))
        connection.execute(sa.text("UPDATE run_progress SET running_since = now() - interval '90 minutes'"))
    exclude_downtime(stores.engine)
    assert stores.runs.get(commit.run_id).spent.seconds == pytest.approx(1800, abs=30)


def test_time_before_the_first_service_is_not_charged(stores: Stores) -> None:
    commit = _begin(stores, toy_spec(budget={"seconds": 600}))
    with stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE run_progress SET running_since = now() - interval '1 day'"))
    assert exclude_downtime(stores.engine) == 1
    stores.work.reconcile()
    assert stores.runs.get(commit.run_id).state.value == "running"


def test_a_confirmation_may_finish_after_the_time_budget(stores: Stores) -> None:
    commit = _begin(stores, toy_spec(budget={"seconds": 600}), toy_problem(seed_program="x = 6\ny = 9\n"))
    lease = _claim(stores, commit.dispatch[0].id)
    outcome = Candidate(
        lease.payload["first"], read_proposals(lease.payload)[0], Evaluation(rewards=(6.0, 9.0)), targets=1
    )
    claimed = stores.work.commit_evaluations(lease, EvaluatedBatch((outcome,)))
    assert claimed is not None
    with stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE run_progress SET running_since = now() - interval '700 seconds'"))
    stores.work.reconcile()
    assert stores.runs.get(commit.run_id).state.value == "running"
    assert stores.work.commit_confirmation(_claim(stores, claimed.dispatch[0].id), Confirmation(1, [0])) is not None
    run = stores.runs.get(commit.run_id)
    assert (run.state.value, run.reached, run.spent.seconds) == ("completed", ("half",), 600.0)


def test_a_silent_leader_is_deposed_and_a_live_one_is_not(stores: Stores) -> None:
    """A frozen process, or a host that vanished, keeps its session and thereby the lock."""
    with (
        leadership(stores.direct, silent_s=3600) as first,
        leadership(stores.direct, silent_s=3600) as patient,
        leadership(stores.direct, silent_s=1.5) as second,
    ):
        assert first()
        for _ in range(20):
            assert first()
            assert not second()
            time.sleep(0.1)
        assert not patient()
        wait_for(second)  # the first leader says nothing more
        assert not patient()
        with pytest.raises(DBAPIError):
            first()
        assert second()
