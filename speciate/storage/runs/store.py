"""Create, steer, label and list runs on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.errors import NotFoundError
from speciate.domain.labels import Labels, Relabelling
from speciate.domain.run import RunSpec, RunState, sources_of, transition_error
from speciate.domain.values import digest_of, storable
from speciate.ports.records.base import Page
from speciate.ports.records.policies import PolicyVersion
from speciate.ports.records.problems import ProblemVersion
from speciate.ports.records.runs import RunRecord, SpentRecord, WorkRecord
from speciate.ports.runs import NO_ENSEMBLES, NO_LABELS, Ensembles
from speciate.ports.work import Commit, RunContext, WorkKind, WorkRef
from speciate.runs import ledger
from speciate.runs.progress import Effects, RunProgress
from speciate.storage import cursors
from speciate.storage.access.quotas import free_run_slots, lock_quota, lock_quota_of_run
from speciate.storage.database import ScopedStore, reading, with_retries
from speciate.storage.rows import claim_key, read_stored, scoped_key, uuid7, where
from speciate.storage.runs.context import SHARES, insert_shares, load_context, members
from speciate.storage.runs.progress import RUNNING_SECONDS, LockedProgress, lock_progress
from speciate.storage.tables import progress, runs
from speciate.storage.work.effects import write_effects

_SELECT = f"""
SELECT r.id, r.project_id, r.name, r.tags, r.note, r.problem_id, r.policy_id, r.mutator_id, r.spec, r.created_at, g.*,
  {RUNNING_SECONDS} AS seconds_now, p.slug AS problem, p.version AS problem_version,
  p.definition -> 'objectives' AS objectives, p.definition -> 'targets' AS targets,
  a.slug AS policy, a.version AS policy_version, b.slug AS mutator, b.version AS mutator_version,
  {SHARES} AS shares
FROM runs r JOIN run_progress g ON g.run_id = r.id JOIN problems p ON p.id = r.problem_id
  JOIN policies a ON a.id = r.policy_id LEFT JOIN policies b ON b.id = r.mutator_id
"""
_USES_POLICY = (
    "(r.policy_id = :policy_id OR EXISTS (SELECT FROM run_policies e WHERE e.run_id = r.id AND e.policy_id = :policy_id"
    " AND e.role = 'propose'))"
)
# The indexes are partial, so the queries repeat their conditions.
_TAGGED = "r.tags <> '{}' AND r.tags @> cast(:tags AS text[])"
_NAMED = "r.name <> '' AND strpos(lower(r.name), lower(:name)) > 0"
_TOUCH = sa.text(
    "UPDATE run_progress SET revision = revision + 1 WHERE run_id = :id RETURNING revision, events AS last_event, state"
)
_MAX_REASON = 2000
_DISPATCH_READY = sa.text(
    "UPDATE work SET dispatched_at = clock_timestamp(), resends = 0 WHERE run_id = :id AND state = 'ready'"
    " RETURNING id, kind, attempt"
)


@dataclass
class PostgresRunStore(ScopedStore):
    """``RunStore`` on PostgreSQL.

    Attributes:
        own: True if runs count towards the day's quotas; those of tournaments and campaigns count with these.
        require: Precondition of a change, called with revision and state under the run's lock; raises if it fails.
    """

    own: bool = True
    require: Callable[[int, RunState], None] | None = None

    def create(
        self,
        problem: ProblemVersion,
        policy: PolicyVersion,
        mutator: PolicyVersion | None,
        spec: RunSpec,
        *,
        ensembles: Ensembles = NO_ENSEMBLES,
        labels: Labels = NO_LABELS,
        granted: int | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[UUID, bool]:
        """Create a run without starting it; see the port."""
        # The id is drawn outside the retried transaction, so that a repetition finds the run it created before.
        return self._create(uuid7(), problem, policy, mutator, spec, ensembles, labels, granted, idempotency_key)

    @with_retries
    def _create(
        self,
        run_id: UUID,
        problem: ProblemVersion,
        policy: PolicyVersion,
        mutator: PolicyVersion | None,
        spec: RunSpec,
        ensembles: Ensembles,
        labels: Labels,
        granted: int | None,
        idempotency_key: str | None,
    ) -> tuple[UUID, bool]:
        project = self._home
        with self._engine.begin() as connection:
            if idempotency_key is not None:
                request: list[object] = [
                    str(problem.id),
                    str(policy.id),
                    str(mutator and mutator.id),
                    spec.stored_json(),
                ]
                request += [[r, str(share.version.id), share.weight] for r, of in ensembles.items() for share in of]
                if labels != NO_LABELS:
                    request.append(labels.stored_json())
                held = claim_key(connection, scoped_key(project, idempotency_key), digest_of(request), run_id)
                if held != run_id:
                    return held, False
            quota = lock_quota(connection, project)
            quota.require_run_slot(connection)
            if self.own:
                quota.require(connection, spec.budget.evaluations, spec.budget.tokens)
            added = connection.execute(
                insert(runs)
                .values(
                    id=run_id,
                    project_id=project,
                    own=self.own,
                    problem_id=problem.id,
                    policy_id=policy.id,
                    mutator_id=mutator.id if mutator else None,
                    strategy=spec.strategy,
                    spec=spec.stored_json(),
                    **labels.stored_json(),
                )
                .on_conflict_do_nothing()
                .returning(runs.c.id)
            )
            if added.one_or_none() is None:
                return run_id, True
            insert_shares(connection, run_id, ensembles)
            budget = spec.budget
            connection.execute(
                sa.insert(progress).values(
                    run_id=run_id,
                    state=RunState.CREATED.value,
                    budget_evaluations=budget.evaluations,
                    budget_tokens=budget.tokens,
                    budget_seconds=budget.seconds,
                )
            )
            locked = lock_progress(connection, run_id)
            write_effects(connection, locked, ledger.create(locked.progress, load_context(connection, run_id), granted))
        return run_id, True

    def start(self, run_id: UUID) -> Commit:
        """Start a created run."""
        return self._move(run_id, RunState.RUNNING, ledger.start, only_from=RunState.CREATED)

    def pause(self, run_id: UUID, reason: str | None = None, *, fault: bool = False) -> Commit:
        """Pause a run."""
        return self._move(run_id, RunState.PAUSED, lambda p, _: ledger.pause(p, _stored_reason(reason), fault=fault))

    def resume(self, run_id: UUID) -> Commit:
        """Resume a paused run."""
        return self._move(run_id, RunState.RUNNING, ledger.resume, only_from=RunState.PAUSED)

    def cancel(self, run_id: UUID, reason: str | None = None) -> Commit:
        """Cancel a run and discard its work in flight."""
        return self._move(run_id, RunState.CANCELLED, lambda p, _: ledger.cancel(p, _stored_reason(reason)))

    @with_retries
    def grant(self, run_id: UUID, granted: int) -> Commit:
        """Set the number of evaluations that a run may spend; see the port."""
        with self._engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            before = locked.progress.state
            effects = ledger.grant(locked.progress, load_context(connection, run_id), granted)
            if before is RunState.PAUSED and locked.progress.state is RunState.RUNNING:
                lock_quota_of_run(connection, run_id).require_run_slot(connection)
            return write_effects(connection, locked, effects)

    def close(self, run_id: UUID, reason: str) -> Commit:
        """Complete a run that waits for a grant."""
        return self._move(run_id, RunState.COMPLETED, lambda p, _: ledger.close(p, reason), only_from=RunState.PAUSED)

    @with_retries
    def label(self, run_id: UUID, change: Relabelling) -> Commit:
        """Change the labels of a run; see the port."""
        with self._engine.begin() as connection:
            # The progress is locked first; its revision invalidates pages and caches.
            touched = connection.execute(_TOUCH, {"id": run_id}).one_or_none()
            if touched is None:
                raise NotFoundError(f"there is no run {run_id}.")
            if self.require is not None:
                self.require(touched.revision - 1, RunState(touched.state))
            mine = runs.c.id == run_id
            row = connection.execute(sa.select(runs.c.name, runs.c.tags, runs.c.note).where(mine)).one()
            labels = change.of(Labels.model_validate(row._asdict()))
            connection.execute(sa.update(runs).where(mine).values(labels.stored_json()))
        return Commit(run_id, revision=touched.revision, last_event=touched.last_event)

    @with_retries
    def get(self, run_id: UUID) -> RunRecord:
        """Return a run."""
        with reading(self._engine) as connection:
            row = connection.execute(sa.text(_SELECT + " WHERE r.id = :id"), {"id": run_id}).one_or_none()
        if row is None or self.project not in {None, row.project_id}:
            raise NotFoundError(f"there is no run {run_id}.")
        return _record(row)

    @with_retries
    def list(
        self,
        *,
        problem_id: UUID | None = None,
        policy_id: UUID | None = None,
        state: RunState | None = None,
        tags: Sequence[str] = (),
        name: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[RunRecord]:
        """Return runs, newest first.

        Args:
            problem_id: Problem version.
            policy_id: Policy version, alone or as a proposer of an ensemble.
            state: State.
            tags: Required tags.
            name: Part of the name, ignoring case.
            limit: Maximum number of items.
            cursor: Cursor of the page.
        """
        clause, binds = where(
            {
                "r.problem_id = :problem_id": problem_id,
                _USES_POLICY: policy_id,
                "g.state = :state": state and state.value,
                _TAGGED: [*tags] or None,
                _NAMED: name,
                "r.id < :after": cursors.decode_id(cursor) if cursor else None,
                "r.project_id = :project": self.project,
            }
        )
        query = sa.text(_SELECT + clause + " ORDER BY r.id DESC LIMIT :limit")
        with reading(self._engine) as connection:
            rows = connection.execute(query, {**binds, "limit": limit + 1}).all()
        return cursors.page(rows, limit, _record, cursors.by_id)

    @with_retries
    def work_in_flight(self, *, limit: int = 500) -> tuple[WorkRecord, ...]:
        """Return leased and ready work, oldest first."""
        query = sa.text(
            "SELECT id, run_id, kind, state, attempt, lane, extract(epoch FROM lease_until - clock_timestamp()) AS left"
            " FROM work w WHERE state IN ('ready', 'leased') AND (cast(:project AS uuid) IS NULL OR EXISTS (SELECT"
            " FROM runs r WHERE r.id = w.run_id AND r.project_id = :project)) ORDER BY id LIMIT :limit"
        )
        with reading(self._engine) as connection:
            rows = connection.execute(query, {"limit": limit, "project": self.project}).mappings().all()
        return tuple(
            WorkRecord(
                work_id=row["id"],
                run_id=row["run_id"],
                kind=row["kind"],
                state=row["state"],
                attempt=row["attempt"],
                lane=row["lane"],
                lease_seconds_left=None if row["left"] is None else float(row["left"]),
            )
            for row in rows
        )

    @with_retries
    def free_slots(self) -> int | None:
        """Return how many more runs may be under way in the project; None is unlimited."""
        with self._engine.begin() as connection:
            return free_run_slots(connection, self._home)

    @with_retries
    def unfinished(self) -> tuple[UUID, ...]:
        """Return the running and paused runs."""
        with reading(self._engine) as connection:
            query = sa.select(progress.c.run_id).where(progress.c.state.in_(["running", "paused"]))
            return tuple(connection.execute(query).scalars())

    @with_retries
    def _move(
        self,
        run_id: UUID,
        goal: RunState,
        step: Callable[[RunProgress, RunContext], Effects],
        *,
        only_from: RunState | None = None,
    ) -> Commit:
        with self._engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            source = locked.progress.state
            if self.require is not None:
                self.require(locked.progress.revision, source)
            if source not in sources_of(goal) or (only_from is not None and source is not only_from):
                raise transition_error(str(run_id), source, goal)
            if goal is RunState.RUNNING and source is RunState.PAUSED:
                lock_quota_of_run(connection, run_id).require_run_slot(connection)
            effects = step(locked.progress, load_context(connection, run_id))
            commit = write_effects(connection, locked, effects)
            return _with_waiting_work(connection, locked, commit) if goal is RunState.RUNNING else commit


def _stored_reason(reason: str | None) -> str | None:
    return None if reason is None else storable(reason)[:_MAX_REASON]


def _with_waiting_work(connection: sa.Connection, locked: LockedProgress, commit: Commit) -> Commit:
    if locked.progress.state is not RunState.RUNNING:
        return commit
    rows = connection.execute(_DISPATCH_READY, {"id": locked.run_id})
    refs = tuple(WorkRef(row.id, WorkKind(row.kind), retried=row.attempt > 0) for row in rows)
    return Commit(commit.run_id, refs, commit.placements, commit.revision, commit.last_event)


def _record(row: sa.Row[Any]) -> RunRecord:
    names = [objective["name"] for objective in row.objectives]
    confirmed = [target for i, target in enumerate(row.targets) if row.confirmed >> i & 1]
    spent = {name: getattr(row, name) for name in SpentRecord.model_fields if name != "seconds"}
    # Every other field is a column of the same name.
    return RunRecord.model_validate(
        {
            **row._mapping,
            "ensembles": members(row),
            "spec": read_stored(RunSpec, row.spec),
            "spent": SpentRecord(seconds=row.seconds_now, **spent),
            "candidates": row.evaluated + row.failed,
            "best": dict(zip(names, row.best, strict=False)),
            "reached": tuple(target["name"] for target in confirmed),
            "unlocked": any(target["unlock"] for target in confirmed),
            "since_improvement": row.evaluations - row.improved_at,
            "last_event": row.events,
        }
    )
