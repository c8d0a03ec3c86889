"""Recover from expired leases, lost messages, exceeded time and stalled runs; one leader does it every second."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.candidate import Evaluation, Failure
from speciate.domain.errors import NewerRecordError
from speciate.domain.event import EventKind
from speciate.domain.run import RunState
from speciate.ids import uuid7
from speciate.ports.work import (
    CandidateOutcome,
    Commit,
    EvaluatedBatch,
    Lease,
    ReconcileReport,
    RunContext,
    WorkKind,
    WorkRef,
)
from speciate.runs import ledger, stopping
from speciate.runs.payloads import read_proposals
from speciate.runs.progress import Effects
from speciate.storage.database import reading
from speciate.storage.runs.progress import RUNNING_SECONDS, LockedProgress, lock_progress
from speciate.storage.work.effects import open_confirmations, write_effects

_EXPIRED = sa.text(
    "SELECT id, run_id FROM work WHERE state = 'leased' AND lease_until < clock_timestamp() ORDER BY id LIMIT 256"
)
_SEIZE = sa.text(
    "SELECT * FROM work WHERE id = :id AND state = 'leased' AND lease_until < clock_timestamp() FOR UPDATE"
)
_RETRY = sa.text(
    "UPDATE work SET state = 'ready', lease_token = NULL, lease_until = NULL, reserved_tokens = 0,"
    " dispatched_at = clock_timestamp(), resends = 0 WHERE id = :id"
)
_RESET = sa.text(
    "UPDATE work SET state = 'ready', lease_token = NULL, lease_until = NULL, attempt = 0, dispatched_at = NULL"
    " WHERE id = :id"
)
_TAKE_OVER = sa.text(
    "UPDATE work SET lease_token = :token, lease_until = clock_timestamp() + interval '30 seconds' WHERE id = :id"
)
_POISON = sa.text(
    "UPDATE work SET state = 'poisoned', lease_token = NULL, lease_until = NULL, reason = :reason WHERE id = :id"
)
# A message is sent again after 2, 4, 8, … 64 seconds: soon after the broker lost it, rarely if the queue is just long.
_RESEND = sa.text(
    "UPDATE work w SET dispatched_at = clock_timestamp(), resends = resends + 1 FROM run_progress p"
    " WHERE p.run_id = w.run_id AND p.state = 'running' AND w.state = 'ready' AND (w.dispatched_at IS NULL OR"
    " w.dispatched_at < clock_timestamp() - make_interval(secs => least(power(2, w.resends + 1), 64)))"
    " RETURNING w.id, w.run_id, w.kind, w.attempt"
)
_OVERDUE = sa.text(f"SELECT run_id FROM run_progress WHERE state = 'running' AND budget_seconds <= {RUNNING_SECONDS}")


# The process that created the run stopped before starting it.
_UNSTARTED = sa.text(
    "SELECT r.id FROM runs r JOIN run_progress p ON p.run_id = r.id WHERE p.state = 'created'"
    " AND r.created_at < clock_timestamp() - interval '5 seconds' LIMIT 256"
)
_BEAT = (
    "INSERT INTO reconciler (id, alive_at) VALUES (1, clock_timestamp())"
    " ON CONFLICT (id) DO UPDATE SET alive_at = clock_timestamp()"
)
# Runs that were running when the service stopped are charged until that time.
_DOWNTIME = sa.text(
    "UPDATE run_progress p SET running_since = clock_timestamp(),"
    " seconds = p.seconds + greatest(0, extract(epoch FROM r.alive_at - p.running_since)) FROM reconciler r"
    " WHERE p.state = 'running' AND r.alive_at < clock_timestamp() - make_interval(secs => :gap_s)"
)
DOWNTIME_S = 15.0
"""Seconds without a reconciler after which the service counts as stopped."""

_log = logging.getLogger(__name__)


@dataclass
class Reconciler:
    """One pass of recovery: expired leases, spent time, unstarted runs and lost messages.

    Args:
        engine: The database.
        load_context: Returns the immutable parts of a run.
        commit_evaluations: Books an evaluated batch under its lease.
    """

    engine: sa.Engine
    load_context: Callable[[UUID], RunContext]
    commit_evaluations: Callable[[Lease, EvaluatedBatch], Commit | None]
    _commits: list[Commit] = field(default_factory=list, init=False)
    _retried: int = field(default=0, init=False)
    _poisoned: int = field(default=0, init=False)

    def reconcile(self) -> ReconcileReport:
        """Do the pass and return its commits and counts."""
        with reading(self.engine) as connection:
            expired = connection.execute(_EXPIRED).all()
            overdue = connection.execute(_OVERDUE).scalars().all()
            unstarted = connection.execute(_UNSTARTED).scalars().all()
        steps: tuple[tuple[str, Callable[[Any], None], Sequence[Any]], ...] = (
            ("reclaim", self._reclaim, expired),
            ("end overdue", self._end_overdue, overdue),
            ("start", self._start, unstarted),
        )
        for name, step, found in steps:
            for each in found:
                try:
                    step(each)
                except NewerRecordError as error:
                    _log.warning("%s: %s: %s", name, each, error)
                except Exception:  # noqa: BLE001 - one broken run must not keep the others from recovery
                    _log.exception("%s: %s", name, each)
        dispatched = 0
        with self.engine.begin() as connection:
            for row in connection.execute(_RESEND):
                ref = WorkRef(row.id, WorkKind(row.kind), retried=row.attempt > 0)
                self._commits.append(Commit(row.run_id, dispatch=(ref,)))
                dispatched += 1
        return ReconcileReport(tuple(self._commits), self._retried, self._poisoned, dispatched)

    def _end_overdue(self, run_id: UUID) -> None:
        with self.engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            context, left = self.load_context(run_id), open_confirmations(connection, run_id)
            if stopping.out_of_time(locked.progress, context) and (not left or locked.progress.live != left):
                self._commits.append(write_effects(connection, locked, stopping.expire(locked.progress, context, left)))

    def _start(self, run_id: UUID) -> None:
        with self.engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            if locked.progress.state is RunState.CREATED:
                effects = ledger.start(locked.progress, self.load_context(run_id))
                self._commits.append(write_effects(connection, locked, effects))

    def _reclaim(self, work: sa.Row[Any]) -> None:
        with self.engine.begin() as connection:
            locked = lock_progress(connection, work.run_id)
            row = connection.execute(_SEIZE, {"id": work.id}).mappings().one_or_none()
            if row is None:
                return
            kind = WorkKind(row["kind"])
            lease = Lease(
                work.id,
                work.run_id,
                kind,
                row["lane"],
                row["ordinal"],
                row["attempt"],
                uuid7(),
                row["payload"],
                locked.progress.events,
            )
            reserved = (row["reserved_evaluations"], row["reserved_tokens"])
            if row["attempt"] < ledger.MAX_ATTEMPTS:
                self._retry(connection, locked, lease, reserved)
                return
            self._poisoned += 1
            if kind is WorkKind.CONFIRM:
                self._commits.append(_postpone(connection, locked, work.id))
                return
            if kind is WorkKind.GENERATE:
                connection.execute(_POISON, {"id": work.id, "reason": "lost its worker too often"})
                effects = ledger.poison_generate(locked.progress, self.load_context(work.run_id), lease, reserved)
                self._commits.append(write_effects(connection, locked, effects))
                return
            if kind is WorkKind.LEARN:
                connection.execute(_POISON, {"id": work.id, "reason": "lost its worker too often"})
                effects = ledger.poison_learn(locked.progress, self.load_context(work.run_id), lease)
                self._commits.append(write_effects(connection, locked, effects))
                return
            connection.execute(_TAKE_OVER, {"id": work.id, "token": lease.token})
        commit = self._settle_as_lost(lease)
        if commit is not None:
            self._commits.append(commit)

    def _retry(
        self, connection: sa.Connection, locked: LockedProgress, lease: Lease, reserved: tuple[int, int]
    ) -> None:
        connection.execute(_RETRY, {"id": lease.work_id})
        commit = write_effects(
            connection,
            locked,
            ledger.record_lost_attempt(locked.progress, self.load_context(lease.run_id), lease, reserved),
        )
        running = locked.progress.state is RunState.RUNNING
        # Work that a stopping worker released has no failed attempt: it takes the ordinary queue.
        dispatch = (WorkRef(lease.work_id, lease.kind, retried=lease.attempt > 0),) if running else ()
        self._commits.append(Commit(commit.run_id, dispatch, (), commit.revision, commit.last_event))
        self._retried += 1

    def _settle_as_lost(self, lease: Lease) -> Commit | None:
        """Settle a poisoned ``evaluate`` unit with failures instead of results."""
        proposals = read_proposals(lease.payload)
        failure = Failure(*ledger.lost_outcomes(proposals))
        outcomes = tuple(CandidateOutcome(p, Evaluation(failure=p.failure or failure)) for p in proposals)
        return self.commit_evaluations(lease, EvaluatedBatch(outcomes))


def _postpone(connection: sa.Connection, locked: LockedProgress, work_id: UUID) -> Commit:
    """Pause a run whose confirmation keeps losing its worker, which neither confirms nor refutes the claim."""
    connection.execute(_RESET, {"id": work_id})
    reason = f"a confirmation lost its worker {ledger.MAX_ATTEMPTS} times; resume to try again"
    running = locked.progress.state is RunState.RUNNING
    return write_effects(
        connection, locked, stopping.pause(locked.progress, reason, fault=True) if running else Effects()
    )


def beat(connection: sa.Connection, *pending: sa.TextClause) -> bool:
    """Record that the reconciler is alive; return True if one of the queries finds a row."""
    found = " OR ".join(f"EXISTS ({query.text})" for query in pending) or "false"
    return bool(connection.execute(sa.text(f"{_BEAT} RETURNING {found}")).scalar())


def book_downtime(engine: sa.Engine) -> int:
    """Exclude the downtime of the service from the running seconds, and return the number of affected runs."""
    with engine.begin() as connection:
        return connection.execute(_DOWNTIME, {"gap_s": DOWNTIME_S}).rowcount


# Every commit sets the clock of a run. The last event of a reported run is the report.
_STALLED: Final = sa.text(
    "SELECT p.run_id FROM run_progress p LEFT JOIN events e ON e.run_id = p.run_id AND e.seq = p.events"
    " WHERE p.state = 'running' AND p.running_since < clock_timestamp() - make_interval(secs => :stall_s)"
    " AND e.kind IS DISTINCT FROM 'run.stalled'"
    # A run that waits for proposals may wait as long as its proposers like.
    " AND NOT (p.live = 0 AND EXISTS (SELECT FROM runs r JOIN policies a ON a.id = r.policy_id WHERE r.id = p.run_id"
    " AND a.definition ->> 'kind' = 'external')) LIMIT 256"
)
_WORK: Final = sa.text(
    "SELECT count(*) FILTER (WHERE state = 'ready') AS ready, count(*) FILTER (WHERE state = 'leased') AS leased,"
    " count(*) FILTER (WHERE state = 'parked') AS parked,"
    " string_agg(DISTINCT kind, ' and ') AS kinds FROM work WHERE run_id = :run_id"
    " AND state IN ('ready', 'leased', 'parked')"
)


def report_stalled(engine: sa.Engine, *, stall_s: float) -> list[Commit]:
    """Append ``run.stalled`` to the log of every running run that has not committed anything for ``stall_s`` seconds.

    Returns:
        The commits to publish. The next commit of a run ends its stall, and a later stall is reported again.
    """
    with reading(engine) as connection:
        stalled = connection.execute(_STALLED, {"stall_s": stall_s}).scalars().all()
    commits = []
    for run_id in stalled:
        with engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            still = connection.execute(_STALLED, {"stall_s": stall_s}).scalars().all()
            if locked.progress.state is RunState.RUNNING and run_id in still:
                work = connection.execute(_WORK, {"run_id": run_id}).one()
                effects = Effects()
                effects.event(EventKind.RUN_STALLED, message=_message(stall_s, work))
                commits.append(write_effects(connection, locked, effects))
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
