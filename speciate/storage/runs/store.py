"""Create, steer, label, hide and list runs on PostgreSQL."""

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import count
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.capabilities import CALLABLE
from speciate.domain.errors import ConflictError, NotFoundError
from speciate.domain.labels import Labels, Relabelling
from speciate.domain.run import RunState, sources_of, transition_error
from speciate.domain.values import MAX_REASON, storable
from speciate.domain.visibility import Visibility, VisibilityChange, require_visible
from speciate.ports.runs import NewRun
from speciate.ports.work import Commit, RunContext
from speciate.runs import ledger, stopping
from speciate.runs.progress import RunChange, RunProgress
from speciate.schema.base import Page
from speciate.schema.estimates import ObservedRun
from speciate.schema.runs import RunOrder, RunRecord, WorkRecord
from speciate.storage import cursors
from speciate.storage.access.quotas import free_run_slots, lock_quota, lock_quota_of_run
from speciate.storage.database import ScopedStore, with_new_id, with_retries
from speciate.storage.idempotency import claim_key, scoped_key
from speciate.storage.lookup import require_row
from speciate.storage.references import require_undeclared
from speciate.storage.runs.context import insert_seeds, insert_shares, load_context
from speciate.storage.runs.locking import LockedRun, lock_progress
from speciate.storage.runs.queries import RunQueries
from speciate.storage.runs.records import ALL_RUNS, GET_RUN, WORK_IN_FLIGHT, RunFilter, run_listing, run_record
from speciate.storage.statements import Statements
from speciate.storage.tables.runs import runs
from speciate.storage.visibility import change_visibility
from speciate.storage.work.effects import dispatch_ready, write_change

SQL = Statements(__file__)
UNENDED = SQL.unended
_Step = Callable[[RunChange, RunContext], None]
"""Changes the state of a run."""


@dataclass
class PostgresRunStore(ScopedStore):
    """Creates, steers, labels and lists runs on PostgreSQL.

    Methods that change a run's state raise ``NotFoundError`` for an unknown run and ``ConflictError`` if the state does
    not allow the change.
    """

    own: bool = True
    """True if runs count towards the day's quotas; those of tournaments and campaigns count with these."""
    require: Callable[[int, RunState], None] | None = None
    """Precondition of a change, called with revision and state under the run's lock; raises if it fails."""

    def create(self, new: NewRun) -> tuple[UUID, bool]:
        """Create a run without starting it; return its id, and True if it is new.

        A repeated idempotency key returns the run of the first request; ``ConflictError`` if that differed.
        """
        run_id, is_new, _ = self._create(new, start=False)
        return run_id, is_new

    def launch(self, new: NewRun) -> tuple[UUID, bool, Commit | None]:
        return self._create(new, start=True)

    @with_new_id
    def _create(self, run_id: UUID, new: NewRun, *, start: bool) -> tuple[UUID, bool, Commit | None]:
        project, budget = self._home, new.spec.budget
        with self._engine.begin() as connection:
            if new.idempotency_key is not None:
                first_id = claim_key(connection, scoped_key(project, new.idempotency_key), new.request_digest, run_id)
                if first_id != run_id:
                    return first_id, False, None
            if connection.execute(SQL.exists, {"id": run_id}).scalar_one():
                return run_id, True, None  # an earlier attempt stored it, and counts towards the quota
            _require_usable(connection, new.problem.id, new.policy_ids, archived=not self.own)
            quota = lock_quota(connection, project)
            quota.require_run_slot(connection)
            if self.own:
                quota.require(connection, budget.evaluations, budget.tokens)
            now = connection.execute(SQL.insert, _parameters(new, run_id, project, own=self.own)).scalar_one()
            insert_shares(connection, run_id, new.policies.ensembles)
            insert_seeds(connection, run_id, new.seeds)
            # The row is new, so no other transaction can see it or hold its lock.
            locked = LockedRun(progress=RunProgress(), run_id=run_id, now=now)
            context = new.context(run_id, project)
            ledger.create(locked, context, new.granted)
            if start:
                ledger.start(locked, context)
            return run_id, True, write_change(connection, locked)

    def start(self, run_id: UUID) -> Commit:
        return self._move(run_id, RunState.RUNNING, ledger.start, only_from=RunState.CREATED)

    def pause(self, run_id: UUID, reason: str | None = None, *, fault: bool = False) -> Commit:
        """Stop dispatching work; results of work in flight are still recorded. Webhooks report a ``fault``."""
        return self._move(
            run_id, RunState.PAUSED, lambda change, _: stopping.pause(change, _stored_reason(reason), fault=fault)
        )

    def resume(self, run_id: UUID) -> Commit:
        commit = self._move(run_id, RunState.RUNNING, ledger.resume, only_from=RunState.PAUSED)
        self._execute(SQL.offer_again, {"run_id": run_id, "callable": f"{CALLABLE}%"})
        return commit

    def cancel(self, run_id: UUID, reason: str | None = None) -> Commit:
        """End a run. Committed results stay, work in flight is discarded."""
        return self._move(run_id, RunState.CANCELLED, lambda change, _: stopping.cancel(change, _stored_reason(reason)))

    @with_retries
    def grant(self, run_id: UUID, granted: int) -> Commit:
        """Raise a campaign run's limit to ``granted`` evaluations in total. Idempotent."""
        with self._engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            before = locked.progress.state
            ledger.grant_budget(locked, load_context(connection, run_id), granted)
            if before is RunState.PAUSED and locked.progress.state is RunState.RUNNING:
                lock_quota_of_run(connection, run_id).require_run_slot(connection)
            return write_change(connection, locked)

    def close(self, run_id: UUID, reason: str) -> Commit:
        """Complete a run that waits for a further grant."""
        return self._move(
            run_id,
            RunState.COMPLETED,
            lambda change, context: stopping.complete_waiting_run(change, context, reason),
            only_from=RunState.PAUSED,
        )

    @with_retries
    def label(self, run_id: UUID, change: Relabelling) -> Commit:
        """Change name, tags or note, in any state; open pages show the change at once."""
        with self._engine.begin() as connection:
            touched = self._touch(connection, run_id)
            labels = change.of(Labels.model_validate(connection.execute(SQL.labels, {"id": run_id}).one()._asdict()))
            connection.execute(SQL.set_labels, {"id": run_id, **labels.stored_json()})
        return Commit(run_id, revision=touched.revision, last_event=touched.last_event)

    @with_retries
    def change_visibility(self, run_id: UUID, change: VisibilityChange) -> Commit:
        """Archive, delete or restore an ended run; open pages show the change at once. Idempotent.

        Raises:
            NotFoundError: The run does not exist.
            ConflictError: The run has not ended; it is deleted and cannot be archived; a tournament or campaign started
                it and it cannot be deleted; or its problem or a policy is deleted and it cannot be restored.
        """
        with self._engine.begin() as connection:
            touched = self._touch(connection, run_id)
            if not RunState(touched.state).ended:
                raise ConflictError(
                    f"run {run_id} is {touched.state} and cannot be {change.past}.", remedy="Cancel it first."
                )
            row = connection.execute(SQL.parts, {"id": run_id}).one()
            if change is VisibilityChange.ARCHIVE:
                require_visible(f"run {run_id}", row, archived=True)
            elif change is VisibilityChange.DELETE and not row.own:
                require_undeclared(connection, run_id)
            elif change is VisibilityChange.RESTORE and row.deleted_at is not None:
                policy_ids = {row.policy_id, row.mutator_id, *row.member_ids}
                _require_usable(connection, row.problem_id, policy_ids, archived=True)
            change_visibility(connection, runs, run_id, change)
        return Commit(run_id, revision=touched.revision, last_event=touched.last_event)

    def get(self, run_id: UUID) -> RunRecord:
        row = self._row(GET_RUN, {"id": run_id})
        if row is None or self.project not in {None, row.project_id}:
            raise NotFoundError(f"there is no run {run_id}.")
        return run_record(row)

    def list(
        self,
        *,
        problem_id: UUID | None = None,
        policy_id: UUID | None = None,
        state: RunState | None = None,
        tags: Sequence[str] = (),
        name: str | None = None,
        group: str = ALL_RUNS,
        order: RunOrder = RunOrder.STARTED,
        reverse: bool = False,
        visibility: Visibility = Visibility.VISIBLE,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[RunRecord]:
        """Return runs by filter (see ``RunFilter``) and order, newest first by default."""
        listing = run_listing(order, cursor, reverse=reverse)
        runs = RunFilter(self.project, problem_id, policy_id, state, tags, name, group, visibility=visibility)
        return cursors.page(self._rows(*listing.query(runs, limit + 1)), limit, run_record, listing.cursor)

    def work_in_flight(self, *, limit: int = 500) -> tuple[WorkRecord, ...]:
        rows = self._rows(WORK_IN_FLIGHT, {"limit": limit, "project": self.project})
        return tuple(WorkRecord.model_validate(row._asdict()) for row in rows)

    def observed(self, problem: str, strategy: str, policy_id: UUID) -> tuple[ObservedRun, ...]:
        binds = {"project": self._home, "problem": problem, "strategy": strategy, "policy": policy_id}
        return tuple(ObservedRun(**row._asdict()) for row in self._rows(SQL.observed, binds))

    def queries(self) -> RunQueries:
        return RunQueries(self._engine, retry_for_s=self.retry_for_s)

    @with_retries
    def free_slots(self) -> int | None:
        """Return how many more runs may be under way in the project; None is unlimited."""
        with self._engine.begin() as connection:
            return free_run_slots(connection, self._home)

    def unfinished(self) -> tuple[UUID, ...]:
        return tuple(row[0] for row in self._rows(UNENDED))

    def _touch(self, connection: sa.Connection, run_id: UUID) -> sa.Row[Any]:
        """Lock the run's progress row (always the first lock) and increment its revision."""
        touched = require_row(connection.execute(SQL.touch, {"id": run_id}).one_or_none(), f"run {run_id}")
        if self.require is not None:
            self.require(touched.revision - 1, RunState(touched.state))
        return touched

    def _move(self, run_id: UUID, goal: RunState, step: _Step, *, only_from: RunState | None = None) -> Commit:
        return self._attempt_move(run_id, goal, step, only_from, count())

    @with_retries
    def _attempt_move(
        self, run_id: UUID, goal: RunState, step: _Step, only_from: RunState | None, attempts: Iterator[int]
    ) -> Commit:
        with self._engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            source = locked.progress.state
            if next(attempts) and source is goal:  # an earlier attempt has moved it, and only the answer was lost
                return write_change(connection, locked)
            if self.require is not None:
                self.require(locked.progress.revision, source)
            if source not in sources_of(goal) or (only_from is not None and source is not only_from):
                raise transition_error(str(run_id), source, goal)
            if goal is RunState.RUNNING and source is RunState.PAUSED:
                lock_quota_of_run(connection, run_id).require_run_slot(connection)
            step(locked, load_context(connection, run_id))
            commit = write_change(connection, locked)
            if goal is RunState.RUNNING and locked.progress.state is goal:
                return replace(commit, dispatch=dispatch_ready(connection, run_id))
            return commit


def _require_usable(
    connection: sa.Connection, problem_id: UUID, policy_ids: Set[UUID | None], *, archived: bool
) -> None:
    """Check that a run may use its versions, and keep them from being deleted before the transaction ends."""
    named = {"problem": problem_id, "policies": list(policy_ids - {None})}
    for row in connection.execute(SQL.lock_versions, named):
        require_visible(f"{row.what} {row.slug}@{row.version}", row, archived=archived)


def _stored_reason(reason: str | None) -> str | None:
    return None if reason is None else storable(reason)[:MAX_REASON]


def _parameters(new: NewRun, run_id: UUID, project: UUID, *, own: bool) -> dict[str, Any]:
    budget = new.spec.budget
    return {
        "id": run_id,
        "project_id": project,
        "own": own,
        "problem_id": new.problem.id,
        "policy_id": new.policies.policy.id,
        "mutator_id": new.mutator_id,
        "strategy": new.spec.searched_by,
        "spec": new.spec.stored_json(),
        "sources": [source.model_dump(mode="json") for source in new.sources],
        "estimate": None if new.estimate is None else new.estimate.model_dump(mode="json"),
        **new.labels.stored_json(),
        "evaluations": budget.evaluations,
        "tokens": budget.tokens,
        "seconds": budget.seconds,
    }
