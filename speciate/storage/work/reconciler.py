"""Recover from expired leases, lost messages, exceeded time and stalled runs; one leader does it every second."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.event import EventKind
from speciate.domain.run import RunState
from speciate.ids import uuid7
from speciate.ports.work import Commit, EvaluatedBatch, Lease, ReconcileReport, RunContext, WorkKind, WorkRef
from speciate.runs import ledger, stopping
from speciate.storage.database import guarded, reading
from speciate.storage.runs.locking import LockedRun, lock_progress
from speciate.storage.statements import Statements
from speciate.storage.work.effects import open_confirmations, work_ref, write_change

SQL = Statements(__file__)


DOWNTIME_S = 15.0
"""Seconds without a reconciler after which the service counts as stopped."""


@dataclass
class Reconciler:
    """One pass of recovery: expired leases, spent time and lost messages."""

    engine: sa.Engine
    load_context: Callable[[UUID], RunContext]
    commit_evaluations: Callable[[Lease, EvaluatedBatch], Commit | None]
    _commits: list[Commit] = field(default_factory=list, init=False)
    _retried: int = field(default=0, init=False)
    _poisoned: int = field(default=0, init=False)

    def reconcile(self, runs: Sequence[UUID] | None = None) -> ReconcileReport:
        keys = {"runs": None if runs is None else [*runs]}
        with reading(self.engine) as connection:
            expired = connection.execute(SQL.expired, keys).all()
            overdue = connection.execute(SQL.overdue, keys).scalars().all()
        for work in expired:
            with guarded(f"reclaim: {work}"):
                self._reclaim(work)
        for run_id in overdue:
            with guarded(f"end overdue: {run_id}"):
                self._end_overdue(run_id)
        with self.engine.begin() as connection:
            resent = [Commit(row.run_id, dispatch=(work_ref(row),)) for row in connection.execute(SQL.resend, keys)]
        return ReconcileReport((*self._commits, *resent), self._retried, self._poisoned, len(resent))

    def _end_overdue(self, run_id: UUID) -> None:
        with self.engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            progress, context = locked.progress, self.load_context(run_id)
            confirming = open_confirmations(connection, run_id)
            if stopping.out_of_time(progress, context) and (not confirming or progress.live != confirming):
                stopping.expire(locked, context, confirming)
                self._commits.append(write_change(connection, locked))

    def _reclaim(self, work: sa.Row[Any]) -> None:
        with self.engine.begin() as connection:
            locked = lock_progress(connection, work.run_id)
            row = connection.execute(SQL.lock_expired, {"id": work.id}).one_or_none()
            if row is None:
                return
            kind = WorkKind(row.kind)
            attempt, payload, events = row.attempt, row.payload, locked.progress.events
            lease = Lease(work.id, work.run_id, kind, row.lane, row.ordinal, attempt, uuid7(), payload, events)
            reserved = (row.reserved_evaluations, row.reserved_tokens)
            if attempt < ledger.MAX_ATTEMPTS:
                self._retry(connection, locked, lease, reserved)
                return
            self._poisoned += 1
            if kind is WorkKind.CONFIRM:
                # Its claim is neither confirmed nor refuted.
                connection.execute(SQL.reset_attempts, {"id": work.id})
                if locked.progress.state is RunState.RUNNING:
                    reason = f"a confirmation lost its worker {ledger.MAX_ATTEMPTS} times; resume to try again"
                    stopping.pause(locked, reason, fault=True)
                self._commits.append(write_change(connection, locked))
                return
            if kind is not WorkKind.EVALUATE:
                connection.execute(SQL.poison, {"id": work.id, "reason": "lost its worker too often"})
                context = self.load_context(work.run_id)
                if kind is WorkKind.GENERATE:
                    ledger.poison_generate(locked, context, lease, reserved)
                else:
                    ledger.poison_learn(locked, context, lease)
                self._commits.append(write_change(connection, locked))
                return
            connection.execute(SQL.take_over, {"id": work.id, "token": lease.token})
        commit = self.commit_evaluations(lease, EvaluatedBatch(ledger.lost_candidates(lease)))
        if commit is not None:
            self._commits.append(commit)

    def _retry(self, connection: sa.Connection, locked: LockedRun, lease: Lease, reserved: tuple[int, int]) -> None:
        connection.execute(SQL.retry, {"id": lease.work_id})
        lost = ledger.most_of(locked.progress, self.load_context(lease.run_id), *reserved)
        locked.progress.reserved_tokens -= lost.tokens
        ledger.record_lost_attempt(locked, lease, lost)
        commit = write_change(connection, locked)
        running = locked.progress.state is RunState.RUNNING
        # Work that a stopping worker released has no failed attempt: it takes the ordinary queue.
        dispatch = (WorkRef(lease.work_id, lease.kind, retried=lease.attempt > 0),) if running else ()
        self._commits.append(Commit(commit.run_id, dispatch, (), commit.revision, commit.last_event))
        self._retried += lease.attempt > 0


def beat(connection: sa.Connection, *pending: sa.TextClause, local: bool = False) -> bool:
    """Record that the reconciler, or a ``local`` process, is alive; return True if one of the queries finds a row."""
    any_row = " OR ".join(f"EXISTS ({query.text})" for query in pending) or "false"
    return bool(connection.execute(SQL.build("beat", any_row=any_row), {"id": 1 + local}).scalar())


def exclude_downtime(engine: sa.Engine, own: Sequence[UUID] | None = None) -> int:
    """Exclude the downtime of the service, or of the process of its ``own`` runs, from running seconds; count them."""
    with engine.begin() as connection:
        keys = {"gap_s": DOWNTIME_S, "id": 1 + (own is not None), "runs": own}
        return connection.execute(SQL.exclude_downtime, keys).rowcount


def abandon(engine: sa.Engine, runs: Sequence[UUID], alive_at: datetime) -> None:
    """Charge running runs until the time at which the process that executed them was killed, and end its leases."""
    with engine.begin() as connection:
        connection.execute(SQL.abandon, {"runs": [*runs], "alive_at": alive_at})
        connection.execute(SQL.end_leases, {"runs": [*runs]})


def report_stalled(engine: sa.Engine, *, stall_s: float) -> list[Commit]:
    """Append ``run.stalled`` to the log of every running run that has not committed anything for ``stall_s`` seconds.

    Returns the commits to publish. The next commit of a run ends its stall, and a later stall is reported again.
    """
    with reading(engine) as connection:
        stalled = connection.execute(SQL.stalled, {"stall_s": stall_s}).scalars().all()
    commits = []
    for run_id in stalled:
        with engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            still = connection.execute(SQL.stalled, {"stall_s": stall_s}).scalars().all()
            if locked.progress.state is RunState.RUNNING and run_id in still:
                work = connection.execute(SQL.unfinished_work, {"run_id": run_id}).one()
                locked.event(EventKind.RUN_STALLED, message=_message(stall_s, work))
                commits.append(write_change(connection, locked))
    return commits


def _message(stall_s: float, work: sa.Row[Any]) -> str:
    nothing = f"nothing was committed for {stall_s:g} s"
    if not work.ready + work.leased + work.parked:
        return f"{nothing} and no work is left: this is a bug"
    if not work.ready + work.leased:
        return f"{nothing}: {work.parked} batches wait for external evaluators; start one with `speciate evaluate`"
    if work.ready and work.kinds == "learn" and not work.leased:
        return f"{nothing}: a training step waits for a learn worker; start one with `speciate up --learn`"
    if not work.leased:
        return f"{nothing}: {work.ready} units of {work.kinds} work wait for a worker"
    return f"{nothing}: {work.leased} units of {work.kinds} work are leased, {work.ready} wait"
