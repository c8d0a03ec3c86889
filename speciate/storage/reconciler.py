"""One pass over what can go wrong: silent workers, lost doorbells, spent time. Run by one leader, every second."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from speciate.domain.candidate import Evaluation, Failure
from speciate.domain.run import RunState
from speciate.ports.work import Commit, Confirmation, EvaluatedBatch, Lease, Outcome, Sweep, WorkKind, WorkRef
from speciate.runs import ledger
from speciate.runs.payloads import read_proposals
from speciate.storage.effects import write
from speciate.storage.ids import uuid7
from speciate.storage.progress_row import RUNNING_SECONDS, lock_progress

if TYPE_CHECKING:
    from speciate.storage.work_store import PostgresWorkStore

_EXPIRED = sa.text(
    "SELECT id, run_id FROM work WHERE state = 'leased' AND lease_until < clock_timestamp() ORDER BY id LIMIT 256"
)
_SEIZE = sa.text(
    "SELECT * FROM work WHERE id = :id AND state = 'leased' AND lease_until < clock_timestamp() FOR UPDATE"
)
_RETRY = sa.text(
    "UPDATE work SET state = 'ready', lease_token = NULL, lease_until = NULL, reserved_tokens = 0,"
    " dispatched_at = clock_timestamp(), rings = 0 WHERE id = :id"
)
_TAKE_OVER = sa.text(
    "UPDATE work SET lease_token = :token, lease_until = clock_timestamp() + interval '30 seconds' WHERE id = :id"
)
_POISON = sa.text(
    "UPDATE work SET state = 'poisoned', lease_token = NULL, lease_until = NULL, reason = :reason WHERE id = :id"
)
# A doorbell that nobody answered is rung again after 2, 4, 8, … 64 seconds: soon after a broker was lost, seldom
# when a queue is merely long.
_RING = sa.text(
    "UPDATE work w SET dispatched_at = clock_timestamp(), rings = rings + 1 FROM run_progress p"
    " WHERE p.run_id = w.run_id AND p.state = 'running' AND w.state = 'ready' AND (w.dispatched_at IS NULL OR"
    " w.dispatched_at < clock_timestamp() - make_interval(secs => least(power(2, w.rings + 1), 64)))"
    " RETURNING w.id, w.run_id, w.kind, w.attempt"
)
_OVERDUE = sa.text(f"SELECT run_id FROM run_progress WHERE state = 'running' AND budget_seconds <= {RUNNING_SECONDS}")


@dataclass(slots=True)
class _Report:
    commits: list[Commit] = field(default_factory=list)
    retried: int = 0
    poisoned: int = 0
    rung_again: int = 0


def sweep(engine: sa.Engine, store: PostgresWorkStore) -> Sweep:
    """Do one pass and return what others should hear of."""
    report = _Report()
    with engine.connect() as connection:
        expired = connection.execute(_EXPIRED).all()
        overdue = connection.execute(_OVERDUE).scalars().all()
    for work in expired:
        _reclaim(engine, store, work, report)
    for run_id in overdue:
        with engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            if ledger.out_of_time(locked.progress, store.context(run_id)):
                report.commits.append(write(connection, locked, ledger.expire(locked.progress)))
    with engine.begin() as connection:
        for row in connection.execute(_RING):
            ref = WorkRef(row.id, WorkKind(row.kind), retried=row.attempt > 0)
            report.commits.append(Commit(row.run_id, dispatch=(ref,)))
            report.rung_again += 1
    return Sweep(tuple(report.commits), report.retried, report.poisoned, report.rung_again)


def _reclaim(engine: sa.Engine, store: PostgresWorkStore, work: sa.Row[Any], report: _Report) -> None:
    with engine.begin() as connection:
        locked = lock_progress(connection, work.run_id)
        row = connection.execute(_SEIZE, {"id": work.id}).mappings().one_or_none()
        if row is None:
            return
        token = uuid7()
        kind = WorkKind(row["kind"])
        lease = Lease(
            work.id, work.run_id, kind, row["lane"], row["ordinal"], row["attempt"], token, payload=row["payload"]
        )
        reserved = (row["reserved_evaluations"], row["reserved_tokens"])
        if row["attempt"] < ledger.MAX_ATTEMPTS:
            connection.execute(_RETRY, {"id": work.id})
            commit = write(connection, locked, ledger.lose(locked.progress, lease, reserved))
            running = locked.progress.state is RunState.RUNNING
            dispatch = (WorkRef(work.id, kind, retried=True),) if running else ()
            report.commits.append(Commit(commit.run_id, dispatch, (), commit.revision, commit.last_event))
            report.retried += 1
            return
        report.poisoned += 1
        if kind is WorkKind.GENERATE:
            connection.execute(_POISON, {"id": work.id, "reason": "lost its worker too often"})
            effects = ledger.poison_generate(locked.progress, store.context(work.run_id), lease, reserved)
            report.commits.append(write(connection, locked, effects))
            return
        connection.execute(_TAKE_OVER, {"id": work.id, "token": token})
    commit_or_none = _book_loss(store, lease)
    if commit_or_none is not None:
        report.commits.append(commit_or_none)


def _book_loss(store: PostgresWorkStore, lease: Lease) -> Commit | None:
    """Finish a poisoned unit by the ordinary way, with failures instead of results."""
    if lease.kind is WorkKind.CONFIRM:
        number, target = int(lease.payload["number"]), int(lease.payload["target"])
        return store.confirm(lease, Confirmation(number, target, holds=False, detail="the evaluation lost its worker"))
    proposals = read_proposals(lease.payload)
    failure = Failure(*ledger.lost_outcomes(proposals))
    outcomes = tuple(Outcome(p, Evaluation(failure=p.failure or failure)) for p in proposals)
    return store.settle(lease, EvaluatedBatch(outcomes))
