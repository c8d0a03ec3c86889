"""One pass over what can go wrong: silent workers, lost doorbells, spent time. Run by one leader, every second."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.candidate import Evaluation, Failure
from speciate.domain.errors import NewerRecordError
from speciate.domain.run import RunState
from speciate.ports.work import CandidateOutcome, Commit, EvaluatedBatch, Lease, ReconcileReport, WorkKind, WorkRef
from speciate.runs import ledger
from speciate.runs.effects import Effects
from speciate.runs.payloads import read_proposals
from speciate.storage.database import reading
from speciate.storage.effects import confirming, write
from speciate.storage.ids import uuid7
from speciate.storage.progress_row import RUNNING_SECONDS, LockedProgress, lock_progress

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
_AFRESH = sa.text(
    "UPDATE work SET state = 'ready', lease_token = NULL, lease_until = NULL, attempt = 0, dispatched_at = NULL"
    " WHERE id = :id"
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


# Whoever made the run was cut off before it began it.
_FORGOTTEN = sa.text(
    "SELECT r.id FROM runs r JOIN run_progress p ON p.run_id = r.id WHERE p.state = 'created'"
    " AND r.created_at < clock_timestamp() - interval '5 seconds' LIMIT 256"
)
_BEAT = sa.text(
    "INSERT INTO reconciler (id, alive_at) VALUES (1, clock_timestamp())"
    " ON CONFLICT (id) DO UPDATE SET alive_at = clock_timestamp()"
)
# What was running when the service stopped is charged until then.
_DOWNTIME = sa.text(
    "UPDATE run_progress p SET running_since = clock_timestamp(),"
    " seconds = p.seconds + greatest(0, extract(epoch FROM r.alive_at - p.running_since)) FROM reconciler r"
    " WHERE p.state = 'running' AND r.alive_at < clock_timestamp() - make_interval(secs => :gap_s)"
)
DOWNTIME_S = 15.0
"""Seconds without a reconciler after which the service counts as having been stopped."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Report:
    commits: list[Commit] = field(default_factory=list)
    retried: int = 0
    poisoned: int = 0
    resent: int = 0


def reconcile(engine: sa.Engine, store: PostgresWorkStore) -> ReconcileReport:
    """Do one pass and return what others should hear of."""
    report = _Report()
    with reading(engine) as connection:
        expired = connection.execute(_EXPIRED).all()
        overdue = connection.execute(_OVERDUE).scalars().all()
        forgotten = connection.execute(_FORGOTTEN).scalars().all()
    mend: tuple[tuple[Callable[..., None], Sequence[Any]], ...]
    mend = ((_reclaim, expired), (_end_overdue, overdue), (_begin_forgotten, forgotten))
    for step, found in mend:
        for each in found:
            try:
                step(engine, store, each, report)
            except NewerRecordError as error:
                _log.warning("%s: %s: %s", step.__name__.strip("_").replace("_", " "), each, error)
            except Exception:  # noqa: BLE001 - one that cannot be mended must not keep the others from it
                _log.exception("%s: %s", step.__name__.strip("_").replace("_", " "), each)
    with engine.begin() as connection:
        for row in connection.execute(_RING):
            ref = WorkRef(row.id, WorkKind(row.kind), retried=row.attempt > 0)
            report.commits.append(Commit(row.run_id, dispatch=(ref,)))
            report.resent += 1
    return ReconcileReport(tuple(report.commits), report.retried, report.poisoned, report.resent)


def _end_overdue(engine: sa.Engine, store: PostgresWorkStore, run_id: UUID, report: _Report) -> None:
    with engine.begin() as connection:
        locked = lock_progress(connection, run_id)
        context, left = store.context(run_id), confirming(connection, run_id)
        if ledger.out_of_time(locked.progress, context) and (not left or locked.progress.live != left):
            report.commits.append(write(connection, locked, ledger.expire(locked.progress, context, left)))


def _begin_forgotten(engine: sa.Engine, store: PostgresWorkStore, run_id: UUID, report: _Report) -> None:
    with engine.begin() as connection:
        locked = lock_progress(connection, run_id)
        if locked.progress.state is RunState.CREATED:
            effects = ledger.start(locked.progress, store.context(run_id))
            report.commits.append(write(connection, locked, effects))


def _reclaim(engine: sa.Engine, store: PostgresWorkStore, work: sa.Row[Any], report: _Report) -> None:
    with engine.begin() as connection:
        locked = lock_progress(connection, work.run_id)
        row = connection.execute(_SEIZE, {"id": work.id}).mappings().one_or_none()
        if row is None:
            return
        token = uuid7()
        kind = WorkKind(row["kind"])
        lease = Lease(
            work.id,
            work.run_id,
            kind,
            row["lane"],
            row["ordinal"],
            row["attempt"],
            token,
            row["payload"],
            locked.progress.events,
        )
        reserved = (row["reserved_evaluations"], row["reserved_tokens"])
        if row["attempt"] < ledger.MAX_ATTEMPTS:
            connection.execute(_RETRY, {"id": work.id})
            commit = write(connection, locked, ledger.lose(locked.progress, lease, reserved))
            running = locked.progress.state is RunState.RUNNING
            # What was handed back by a worker that stopped has no failed attempt: it goes the ordinary way.
            dispatch = (WorkRef(work.id, kind, retried=row["attempt"] > 0),) if running else ()
            report.commits.append(Commit(commit.run_id, dispatch, (), commit.revision, commit.last_event))
            report.retried += 1
            return
        report.poisoned += 1
        if kind is WorkKind.CONFIRM:
            report.commits.append(_postpone(connection, locked, work.id))
            return
        if kind is WorkKind.GENERATE:
            connection.execute(_POISON, {"id": work.id, "reason": "lost its worker too often"})
            effects = ledger.poison_generate(locked.progress, store.context(work.run_id), lease, reserved)
            report.commits.append(write(connection, locked, effects))
            return
        connection.execute(_TAKE_OVER, {"id": work.id, "token": token})
    commit_or_none = _book_loss(store, lease)
    if commit_or_none is not None:
        report.commits.append(commit_or_none)


def _postpone(connection: sa.Connection, locked: LockedProgress, work_id: UUID) -> Commit:
    """Pause over a confirmation that keeps losing its worker: that refutes nothing, and nothing may count without."""
    connection.execute(_AFRESH, {"id": work_id})
    reason = f"a confirmation lost its worker {ledger.MAX_ATTEMPTS} times; resume to try again"
    running = locked.progress.state is RunState.RUNNING
    return write(connection, locked, ledger.pause(locked.progress, reason, fault=True) if running else Effects())


def beat(engine: sa.Engine) -> None:
    """Note that there is a reconciler, and thereby a service."""
    with engine.begin() as connection:
        connection.execute(_BEAT)


def book_downtime(engine: sa.Engine) -> int:
    """Take the time in which the service was stopped out of the running seconds; return the runs that it concerned."""
    with engine.begin() as connection:
        return connection.execute(_DOWNTIME, {"gap_s": DOWNTIME_S}).rowcount


def _book_loss(store: PostgresWorkStore, lease: Lease) -> Commit | None:
    """Finish a poisoned ``evaluate`` unit by the ordinary way, with failures instead of results."""
    proposals = read_proposals(lease.payload)
    failure = Failure(*ledger.lost_outcomes(proposals))
    outcomes = tuple(CandidateOutcome(p, Evaluation(failure=p.failure or failure)) for p in proposals)
    return store.record_evaluations(lease, EvaluatedBatch(outcomes))
