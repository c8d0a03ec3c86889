"""Work store on PostgreSQL: a lease is claimed by an update and finished in one fenced transaction."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.candidate import NOT_THE_PROGRAMS_FAULT, Evaluation
from speciate.domain.charge import Charge
from speciate.domain.ensemble import BanditArm
from speciate.domain.event import EventKind
from speciate.domain.rollout import Rollout
from speciate.domain.run import RunState
from speciate.domain.values import MAX_REASON, storable
from speciate.ids import uuid7
from speciate.ports.work import (
    Commit,
    Confirmation,
    EvaluatedBatch,
    EvaluationRequest,
    FinalValue,
    LearnedStep,
    Lease,
    ProposedBatch,
    ReconcileReport,
    RunContext,
    WorkKind,
    WorkRef,
)
from speciate.runs import ledger, stopping
from speciate.runs.ensemble import read_arms
from speciate.search.strategy import EliteTable, Placement
from speciate.storage.candidates import population
from speciate.storage.candidates.insert import insert_candidates, insert_rollouts, read_results
from speciate.storage.database import StorageFullError, Store, reading, reads, with_retries, writing_once
from speciate.storage.runs.advice import insert_advice, read_living
from speciate.storage.runs.context import load_context
from speciate.storage.runs.locking import LockedRun, finish_work, lock_progress
from speciate.storage.statements import Statements
from speciate.storage.work.effects import (
    earliest_claimant,
    load_claims,
    meeting,
    open_confirmations,
    place_elites,
    ranked_elites,
    record_repeats,
    refill_target,
    write_change,
)
from speciate.storage.work.external import park_unit, read_external_results
from speciate.storage.work.learning import insert_version, read_groups, read_learned
from speciate.storage.work.noise import revise_archive
from speciate.storage.work.reconciler import Reconciler

SQL = Statements(__file__, lost=", ".join(map(repr, sorted(NOT_THE_PROGRAMS_FAULT))))


@dataclass(frozen=True, slots=True)
class FinishedUnit:
    """A unit that a transaction finishes; ``reserved`` are the evaluations and tokens that it had reserved."""

    connection: sa.Connection
    context: RunContext
    locked: LockedRun
    reserved: tuple[int, int]


Record = Callable[[FinishedUnit], Sequence[Placement] | None]
"""Changes the run of a unit; returns the accepted archive updates."""


@dataclass
class PostgresWorkStore(Store):
    """``WorkStore`` on PostgreSQL."""

    lease_s: float = 30.0
    """Seconds until the lease of a silent worker expires."""
    retry_for_s: float = field(default=60.0, kw_only=True)

    def __post_init__(self) -> None:
        self._context = lru_cache(maxsize=256)(self._load_context)

    @with_retries
    def claim(self, work_id: UUID) -> Lease | None:
        token = uuid7()
        with writing_once(self._engine) as connection:
            row = connection.execute(SQL.claim, {"id": work_id, "token": token, "lease_s": self.lease_s}).one_or_none()
        if row is None:
            return None
        return Lease(
            work_id, row.run_id, WorkKind(row.kind), row.lane, row.ordinal, row.attempt, token, row.payload, row.events
        )

    @with_retries
    def extend(self, lease: Lease) -> bool:
        with writing_once(self._engine) as connection:
            keys = {"id": lease.work_id, "token": lease.token, "lease_s": self.lease_s}
            return connection.execute(SQL.extend, keys).rowcount == 1

    def expire_leases(self, leases: Sequence[Lease]) -> int:
        """Expire the leases of a stopping worker, without retries, and return their number.

        If PostgreSQL does not respond (``DBAPIError``), they expire on their own.
        """
        keys = {"ids": [lease.work_id for lease in leases], "tokens": [lease.token for lease in leases]}
        with writing_once(self._engine) as connection:
            return connection.execute(SQL.expire, keys).rowcount

    def context(self, run_id: UUID) -> RunContext:
        return self._context(run_id)

    @with_retries
    def _load_context(self, run_id: UUID) -> RunContext:
        with reading(self._engine) as connection:
            return load_context(connection, run_id)

    def seconds_left(self, run_id: UUID) -> float | None:
        budget = self.context(run_id).spec.budget.seconds
        return None if budget is None else max(0.0, budget - float(self._value(SQL.running_seconds_of, {"id": run_id})))

    @with_retries
    def elites(self, run_id: UUID, island: int) -> EliteTable:
        dimensions = len(self.context(run_id).problem.objectives)
        with reading(self._engine) as connection:
            return EliteTable.of(population.elites(connection, run_id, island), dimensions)

    lineage_rows = reads(population.lineage_rows)
    members = reads(population.members)
    latest = reads(population.latest)
    standing = reads(population.standing)
    completions = reads(population.completions)
    carried = reads(population.carried)
    duplicates = reads(population.duplicates)
    advice = reads(read_living)
    learned = reads(read_learned)
    groups = reads(read_groups)
    external_results = reads(read_external_results)

    @with_retries
    def results(self, run_id: UUID, hashes: Sequence[str], tier: str) -> dict[str, tuple[str, Evaluation]]:
        context = self.context(run_id)
        if not context.reuses or not hashes:
            return {}
        with reading(self._engine) as connection:
            return read_results(connection, context, hashes, tier)

    def arms(self, run_id: UUID) -> dict[str, BanditArm]:
        return read_arms(self._value(SQL.arms, {"id": run_id}))

    @with_retries
    def reserve_tokens(self, lease: Lease, tokens: int, agent_answers: int = 0) -> bool | None:
        with self._engine.begin() as connection:
            locked = lock_progress(connection, lease.run_id)
            row = connection.execute(
                SQL.reserve, {"id": lease.work_id, "token": lease.token, "tokens": tokens}
            ).one_or_none()
            if row is None:
                return None
            locked.progress.reserved_tokens -= row.before
            if not locked.progress.affords(self.context(lease.run_id), tokens, agent_answers, _answers(lease)):
                connection.rollback()
                return False
            locked.progress.reserved_tokens += tokens
            locked.save(connection)
            return True

    def commit_proposals(self, lease: Lease, batch: ProposedBatch) -> Commit | None:
        def record(unit: FinishedUnit) -> Sequence[Placement]:
            insert_rollouts(unit.connection, unit.context, lease.work_id, lease.ordinal, [*enumerate(batch.rollouts)])
            if batch.advice is not None:
                insert_advice(unit.connection, lease, batch.advice)
            ledger.record_proposals(unit.locked, unit.context, lease, unit.reserved, batch)
            return place_elites(unit.connection, lease.run_id, batch.placements)

        return self._finish(lease, record, batch.rollouts)

    def commit_evaluations(self, lease: Lease, batch: EvaluatedBatch) -> Commit | None:
        def record(unit: FinishedUnit) -> Sequence[Placement]:
            connection, context, locked = unit.connection, unit.context, unit.locked
            insert_candidates(connection, context, lease, batch, locked.progress)
            granted, revision = place_elites(connection, lease.run_id, batch.placements), None
            if context.problem.is_noisy:
                best = locked.progress.best_number
                granted, revision = revise_archive(connection, self, context, lease.ordinal, batch, best)
            ledger.record_evaluations(locked, context, lease, unit.reserved, batch, granted, revision)
            return granted

        return self._finish(lease, record)

    def commit_confirmation(self, lease: Lease, confirmation: Confirmation) -> Commit | None:
        def record(unit: FinishedUnit) -> None:
            connection, context, revision = unit.connection, unit.context, None
            claims = load_claims(connection, context, confirmation.number)
            record_repeats(connection, lease.run_id, confirmation)
            if confirmation.refuted and context.problem.is_noisy:
                rivals = [each.number for each in meeting(connection, lease.run_id, confirmation.refuted_targets)]
                batch, best = EvaluatedBatch(()), unit.locked.progress.best_number
                _, revision = revise_archive(connection, self, context, lease.ordinal, batch, best, rivals)
            else:
                for position in confirmation.refuted:
                    refill_target(connection, context, confirmation.number, position)
            find = partial(earliest_claimant, connection, context)
            elites = partial(ranked_elites, connection, lease.run_id)
            ledger.record_confirmation(unit.locked, context, lease, confirmation, claims, find, elites, revision)

        return self._finish(lease, record)

    def commit_final(self, lease: Lease, final: FinalValue) -> Commit | None:
        return self._finish(
            lease, lambda u: ledger.record_final(u.locked, u.context, final, ranked_elites(u.connection, lease.run_id))
        )

    def commit_step(self, lease: Lease, step: LearnedStep) -> Commit | None:
        def record(unit: FinishedUnit) -> None:
            policy_id = insert_version(unit.connection, step, unit.context.project_id)
            ledger.record_step(unit.locked, unit.context, lease, step, policy_id)

        return self._finish(lease, record)

    def end_learning(self, lease: Lease, reason: str) -> Commit | None:
        reason = storable(reason)[:MAX_REASON]
        return self._finish(lease, lambda unit: ledger.end_learning(unit.locked, unit.context, lease, reason))

    def end_lane(self, lease: Lease) -> Commit | None:
        return self._finish(lease, lambda unit: ledger.end_lane(unit.locked, unit.context, unit.reserved))

    @with_retries
    def park(self, lease: Lease, requests: Sequence[EvaluationRequest]) -> Commit | None:
        capabilities = self.context(lease.run_id).problem.capabilities
        with self._engine.begin() as connection:
            locked = lock_progress(connection, lease.run_id)
            if not park_unit(connection, lease, requests, capabilities):
                return None
            return write_change(connection, locked)

    def release(self, lease: Lease, reason: str, *, spent: Charge | None = None) -> Commit | None:
        reason = storable(reason)[:MAX_REASON]
        try:
            return self._release(lease, reason, spent)
        except StorageFullError:
            return self._pause_in_place(lease, reason, spent)

    @with_retries
    def _pause_in_place(self, lease: Lease, reason: str, spent: Charge | None) -> Commit | None:
        """Pause without inserting a row: on a full disk only updates in place succeed."""
        with self._engine.begin() as connection:
            progress = lock_progress(connection, lease.run_id).progress
            keys = {"id": lease.work_id, "token": lease.token, "reason": reason}
            back = connection.execute(SQL.release, keys).one_or_none()
            if back is None:
                return None
            spent = spent or ledger.most_of(progress, self.context(lease.run_id), _answers(lease), back.reserved)
            values = {"id": lease.run_id, "reason": reason, "reserved": back.reserved, **asdict(spent)}
            row = connection.execute(SQL.pause_in_place, values).one()
        return Commit(lease.run_id, revision=row.revision, last_event=row.events)

    @with_retries
    def _release(self, lease: Lease, reason: str, spent: Charge | None) -> Commit | None:
        with self._engine.begin() as connection:
            locked = lock_progress(connection, lease.run_id)
            keys = {"id": lease.work_id, "token": lease.token, "reason": reason}
            back = connection.execute(SQL.release, keys).one_or_none()
            if back is None:
                if spent is not None:
                    self._charge_cancelled(connection, lease, spent)
                return None
            locked.progress.reserved_tokens -= back.reserved
            if spent is None and back.reserved:  # a run that this process cannot read has none
                spent = ledger.most_of(locked.progress, self.context(lease.run_id), _answers(lease), back.reserved)
            if spent not in (None, Charge()):
                ledger.record_lost_attempt(locked, lease, spent)
            if locked.progress.state is not RunState.RUNNING:
                return write_change(connection, locked)
            since = {"id": lease.run_id, "seq": lease.last_event, "resumed": EventKind.RUN_RESUMED.value}
            if connection.execute(SQL.resumed_since, since).scalar_one():
                return replace(write_change(connection, locked), dispatch=(WorkRef(lease.work_id, lease.kind),))
            stopping.pause(locked, reason, fault=True)
            return write_change(connection, locked)

    def _charge_cancelled(self, connection: sa.Connection, lease: Lease, spent: Charge) -> None:
        connection.execute(SQL.charge_cancelled, {"id": lease.work_id, "token": lease.token, **asdict(spent)})

    def reconcile(self, runs: Sequence[UUID] | None = None) -> ReconcileReport:
        """Reconcile all runs, or those given."""
        return Reconciler(self._engine, self.context, self.commit_evaluations).reconcile(runs)

    @with_retries
    def _finish(self, lease: Lease, record: Record, rollouts: Sequence[Rollout] = ()) -> Commit | None:
        """Finish a unit in one transaction; of one that is too late, only the ``rollouts`` are charged."""
        context = self.context(lease.run_id)
        with self._engine.begin() as connection:
            finished = finish_work(connection, lease)
            if finished is None:
                if rollouts:
                    self._charge_cancelled(connection, lease, ledger.charge_of(context, rollouts))
                return None
            locked, reserved = finished
            if lease.kind is not WorkKind.CONFIRM and stopping.out_of_time(locked.progress, context):
                ledger.settle(locked.progress, context, reserved[1], rollouts)
                stopping.expire(locked, context, open_confirmations(connection, lease.run_id))
                return write_change(connection, locked)
            granted = record(FinishedUnit(connection, context, locked, reserved))
            return write_change(connection, locked, granted or ())


def _answers(lease: Lease) -> int:
    return int(lease.payload.get("answers", 0))
