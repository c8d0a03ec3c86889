"""Create, steer, label, hide and list runs on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.errors import ConflictError, NotFoundError
from speciate.domain.labels import NO_LABELS, Labels, Relabelling
from speciate.domain.learning import learned_slug
from speciate.domain.run import RunSpec, RunState, sources_of, transition_error
from speciate.domain.seeds import SeedProgram
from speciate.domain.values import storable
from speciate.domain.visibility import Visibility, VisibilityChange, require_visible
from speciate.ids import uuid7
from speciate.ports.work import Commit, RunContext, WeightedPolicy, WorkKind, WorkRef
from speciate.runs import ledger, stopping
from speciate.runs.learning import LearningState
from speciate.runs.progress import Effects, RunProgress
from speciate.schema.base import Page
from speciate.schema.policies import RunPolicies
from speciate.schema.problems import ProblemVersion
from speciate.schema.runs import (
    LearningRecord,
    RankedCandidate,
    RunOrder,
    RunRecord,
    SourceRun,
    SpentRecord,
    WorkRecord,
)
from speciate.storage import cursors
from speciate.storage.access.quotas import free_run_slots, lock_quota, lock_quota_of_run
from speciate.storage.cursors import where
from speciate.storage.database import ScopedStore, reading, with_retries
from speciate.storage.idempotency import claim_key, scoped_key
from speciate.storage.lookup import read_stored
from speciate.storage.runs.context import SHARES, insert_seeds, insert_shares, load_context, members
from speciate.storage.runs.listing import RUN_TABLES, run_page
from speciate.storage.runs.progress import RUNNING_SECONDS, LockedProgress, lock_progress
from speciate.storage.runs.queries import RunQueries
from speciate.storage.tables import run_policies, runs
from speciate.storage.visibility import changed_columns, require_undeclared, visibility_condition
from speciate.storage.work.effects import write_effects

# One document, because the driver and SQLAlchemy spend 3 µs of processor time on each column of a result.
_SELECT = f"""
SELECT r.id, r.project_id, (SELECT row_to_json(x) FROM (SELECT
  r.id, r.name, r.tags, r.note, r.problem_id, r.policy_id, r.mutator_id, r.spec, r.sources, r.created_at, r.archived_at,
  r.deleted_at, g.*,
  {RUNNING_SECONDS} AS seconds_now, p.slug AS problem, p.version AS problem_version,
  (SELECT count(*) FROM run_seeds s WHERE s.run_id = r.id) AS seeds,
  p.definition -> 'objectives' AS objectives, p.definition -> 'targets' AS targets,
  a.definition ->> 'kind' = 'external' AS external,
  ARRAY(SELECT q.slug || '@' || q.version FROM run_policies e JOIN policies q ON q.id = e.policy_id
    WHERE e.run_id = r.id AND e.role = 'external' ORDER BY e.ord) AS proposers,
  a.slug AS policy, a.version AS policy_version, b.slug AS mutator, b.version AS mutator_version,
  {SHARES} AS shares, c.id AS best_id, c.scalar AS best_scalar,
  CASE WHEN g.state = 'completed' AND g.best_number IS NULL THEN (SELECT json_build_array(f.failure, f.failure_reason,
    left(f.failure_detail, 10000)) FROM candidates f WHERE f.run_id = r.id AND f.number = 1 AND f.role = 'seed'
    AND f.failure IS NOT NULL) END AS seed_failure) AS x) AS document
"""
_GET = sa.text(f"{_SELECT} FROM {RUN_TABLES} WHERE r.id = :id")
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
UNENDED = sa.text("SELECT run_id FROM run_progress WHERE state IN ('created', 'running', 'paused')")
"""Query of the runs that have not ended."""

_MAX_REASON = 2000
_DISPATCH_READY = sa.text(
    "UPDATE work SET dispatched_at = clock_timestamp(), resends = 0 WHERE run_id = :id AND state = 'ready'"
    " RETURNING id, kind, attempt"
)

# One statement for a run and its progress; nothing is returned if an earlier attempt stored them.
_INSERT = sa.text(
    "WITH added AS (INSERT INTO runs (id, project_id, own, problem_id, policy_id, mutator_id, strategy, spec, sources,"
    " name, tags, note) VALUES (:id, :project_id, :own, :problem_id, :policy_id, :mutator_id, :strategy, :spec,"
    " :sources, :name, :tags, :note) ON CONFLICT DO NOTHING RETURNING id) INSERT INTO run_progress (run_id, state,"
    " budget_evaluations, budget_tokens, budget_seconds) SELECT id, 'created', cast(:evaluations AS bigint),"
    " cast(:tokens AS bigint),"
    " cast(:seconds AS float8) FROM added RETURNING clock_timestamp()"
).bindparams(
    sa.bindparam("spec", type_=JSONB), sa.bindparam("sources", type_=JSONB), sa.bindparam("tags", type_=ARRAY(sa.Text))
)
# Locked, so that no version is deleted before the run refers to it.
_VERSIONS = sa.text(
    "WITH p AS (SELECT 'problem' AS what, slug, version, archived_at, deleted_at FROM problems WHERE id = :problem"
    " FOR KEY SHARE), a AS (SELECT 'policy' AS what, slug, version, archived_at, deleted_at FROM policies"
    " WHERE id = ANY(:policies) ORDER BY id FOR KEY SHARE) SELECT * FROM p UNION ALL SELECT * FROM a"
)


@dataclass(frozen=True, slots=True)
class _NewRun:
    """The arguments of ``PostgresRunStore.create``."""

    problem: ProblemVersion
    policies: RunPolicies
    spec: RunSpec
    labels: Labels
    granted: int | None
    idempotency_key: str | None
    request_digest: str
    seeds: tuple[SeedProgram, ...]
    sources: tuple[SourceRun, ...] = ()

    @property
    def mutator_id(self) -> UUID | None:
        return self.policies.mutator.id if self.policies.mutator else None

    @property
    def policy_ids(self) -> set[UUID | None]:
        members = (share.version.id for shares in self.policies.ensembles.values() for share in shares)
        return {self.policies.policy.id, self.mutator_id, *members}

    def row(self, run_id: UUID, project: UUID, *, own: bool) -> dict[str, Any]:
        """Return the parameters of ``_INSERT``."""
        budget = self.spec.budget
        return {
            "id": run_id,
            "project_id": project,
            "own": own,
            "problem_id": self.problem.id,
            "policy_id": self.policies.policy.id,
            "mutator_id": self.mutator_id,
            "strategy": self.spec.strategy,
            "spec": self.spec.stored_json(),
            "sources": [source.model_dump(mode="json") for source in self.sources],
            **self.labels.stored_json(),
            "evaluations": budget.evaluations,
            "tokens": budget.tokens,
            "seconds": budget.seconds,
        }

    def context(self, run_id: UUID, project: UUID) -> RunContext:
        """Return the context, as ``load_context`` does once the run is stored."""
        policy, mutator = self.policies.policy, self.policies.mutator
        shares = {
            role: tuple(WeightedPolicy(share.version.definition, share.version.id, share.weight) for share in of)
            for role, of in self.policies.ensembles.items()
        }
        return RunContext(
            run_id=run_id,
            project_id=project,
            problem=self.problem.definition,
            proposer=policy.definition,
            proposer_id=policy.id,
            spec=self.spec,
            mutator=None if mutator is None else mutator.definition,
            mutator_id=self.mutator_id,
            ensembles=shares,
            seeds=self.seeds,
            proposer_version=policy.version,
        )


@dataclass
class PostgresRunStore(ScopedStore):
    """Creates, steers, labels and lists runs on PostgreSQL.

    Methods that change a run's state raise ``NotFoundError`` for an unknown run and ``ConflictError`` if the state does
    not allow the change.

    Attributes:
        own: True if runs count towards the day's quotas; those of tournaments and campaigns count with these.
        require: Precondition of a change, called with revision and state under the run's lock; raises if it fails.
    """

    own: bool = True
    require: Callable[[int, RunState], None] | None = None

    def create(
        self,
        problem: ProblemVersion,
        policies: RunPolicies,
        spec: RunSpec,
        *,
        labels: Labels = NO_LABELS,
        granted: int | None = None,
        idempotency_key: str | None = None,
        request_digest: str = "",
        seeds: Sequence[SeedProgram] = (),
    ) -> tuple[UUID, bool]:
        """Create a run in state ``created``. A repeated idempotency key returns the run of the first request.

        Args:
            problem: The problem version.
            policies: The policies by role.
            spec: Strategy, budget, seed and further options.
            labels: Name, tags and note.
            granted: Evaluations that the run may spend until a campaign grants more; None allows the whole budget.
            idempotency_key: Key of the request.
            request_digest: Digest of the request as it was sent, for its key: names may have newer versions later.
            seeds: Seed programs.

        Returns:
            The run's ID, and True if the run is new.

        Raises:
            ConflictError: The key belongs to a different request.
        """
        request = _NewRun(problem, policies, spec, labels, granted, idempotency_key, request_digest, tuple(seeds))
        # The id is drawn outside the retried transaction, so that a repetition finds the run it created before.
        run_id, new, _ = self._create(uuid7(), request, start=False)
        return run_id, new

    def launch(
        self,
        problem: ProblemVersion,
        policies: RunPolicies,
        spec: RunSpec,
        *,
        labels: Labels = NO_LABELS,
        idempotency_key: str | None = None,
        request_digest: str = "",
        seeds: Sequence[SeedProgram] = (),
        sources: Sequence[SourceRun] = (),
    ) -> tuple[UUID, bool, Commit | None]:
        """Create a run and start it in one transaction; see ``create``. ``sources`` are the runs of the seed programs.

        Returns:
            The run's ID, True if the run is new, and the commit to publish; None if an earlier attempt made it.
        """
        request = _NewRun(
            problem, policies, spec, labels, None, idempotency_key, request_digest, tuple(seeds), tuple(sources)
        )
        return self._create(uuid7(), request, start=True)

    @with_retries
    def _create(self, run_id: UUID, new: _NewRun, *, start: bool) -> tuple[UUID, bool, Commit | None]:
        project, budget = self._home, new.spec.budget
        with self._engine.begin() as connection:
            if new.idempotency_key is not None:
                held = claim_key(connection, scoped_key(project, new.idempotency_key), new.request_digest, run_id)
                if held != run_id:
                    return held, False, None
            _require_usable(connection, new.problem.id, new.policy_ids, archived=not self.own)
            quota = lock_quota(connection, project)
            quota.require_run_slot(connection)
            if self.own:
                quota.require(connection, budget.evaluations, budget.tokens)
            now = connection.execute(_INSERT, new.row(run_id, project, own=self.own)).scalar_one_or_none()
            if now is None:
                return run_id, True, None
            insert_shares(connection, run_id, new.policies.ensembles)
            insert_seeds(connection, run_id, new.seeds)
            # The row is new, so no other transaction can see it or hold its lock.
            locked, context = LockedProgress(run_id, RunProgress(), now), new.context(run_id, project)
            effects = ledger.create(locked.progress, context, new.granted)
            if start:
                effects.extend(ledger.start(locked.progress, context))
            return run_id, True, write_effects(connection, locked, effects)

    def start(self, run_id: UUID) -> Commit:
        """Start a created run."""
        return self._move(run_id, RunState.RUNNING, ledger.start, only_from=RunState.CREATED)

    def pause(self, run_id: UUID, reason: str | None = None, *, fault: bool = False) -> Commit:
        """Stop dispatching work. Results of work in flight are still recorded.

        Args:
            run_id: The run.
            reason: Explanation for users.
            fault: True if a failure caused the pause. Webhooks then report it.
        """
        return self._move(run_id, RunState.PAUSED, lambda p, _: stopping.pause(p, _stored_reason(reason), fault=fault))

    def resume(self, run_id: UUID) -> Commit:
        """Dispatch a paused run's work again."""
        return self._move(run_id, RunState.RUNNING, ledger.resume, only_from=RunState.PAUSED)

    def cancel(self, run_id: UUID, reason: str | None = None) -> Commit:
        """End a run. Committed results stay, work in flight is discarded."""
        return self._move(run_id, RunState.CANCELLED, lambda p, _: stopping.cancel(p, _stored_reason(reason)))

    @with_retries
    def grant(self, run_id: UUID, granted: int) -> Commit:
        """Raise a campaign run's limit to ``granted`` evaluations in total. Idempotent."""
        with self._engine.begin() as connection:
            locked = lock_progress(connection, run_id)
            before = locked.progress.state
            effects = ledger.grant_budget(locked.progress, load_context(connection, run_id), granted)
            if before is RunState.PAUSED and locked.progress.state is RunState.RUNNING:
                lock_quota_of_run(connection, run_id).require_run_slot(connection)
            return write_effects(connection, locked, effects)

    def close(self, run_id: UUID, reason: str) -> Commit:
        """Complete a run that waits for a further grant."""
        return self._move(
            run_id, RunState.COMPLETED, lambda p, _: stopping.complete_waiting_run(p, reason), only_from=RunState.PAUSED
        )

    @with_retries
    def label(self, run_id: UUID, change: Relabelling) -> Commit:
        """Change name, tags or note, in any state; open pages show the change at once.

        Raises:
            NotFoundError: The run does not exist.
            InvalidInputError: The run would have too many tags.
        """
        with self._engine.begin() as connection:
            touched = self._touch(connection, run_id)
            mine = runs.c.id == run_id
            row = connection.execute(sa.select(runs.c.name, runs.c.tags, runs.c.note).where(mine)).one()
            labels = change.of(Labels.model_validate(row._asdict()))
            connection.execute(sa.update(runs).where(mine).values(labels.stored_json()))
        return Commit(run_id, revision=touched.revision, last_event=touched.last_event)

    @with_retries
    def change_visibility(self, run_id: UUID, change: VisibilityChange) -> Commit:
        """Archive, delete or restore an ended run; open pages show the change at once. Idempotent.

        Raises:
            NotFoundError: The run does not exist.
            ConflictError: The run has not ended; it is deleted and cannot be archived; a tournament or campaign started
                it and it cannot be deleted; or its problem or a policy is deleted and it cannot be restored.
        """
        mine = runs.c.id == run_id
        with self._engine.begin() as connection:
            touched = self._touch(connection, run_id)
            if not RunState(touched.state).ended:
                raise ConflictError(
                    f"run {run_id} is {touched.state} and cannot be {change.past}.", remedy="Cancel it first."
                )
            row = connection.execute(sa.select(runs).where(mine)).one()
            if change is VisibilityChange.ARCHIVE:
                require_visible(f"run {run_id}", row, archived=True)
            elif change is VisibilityChange.DELETE and not row.own:
                require_undeclared(connection, run_id)
            elif change is VisibilityChange.RESTORE and row.deleted_at is not None:
                members = sa.select(run_policies.c.policy_id).where(run_policies.c.run_id == run_id)
                policy_ids = {row.policy_id, row.mutator_id, *connection.execute(members).scalars()}
                _require_usable(connection, row.problem_id, policy_ids, archived=True)
            connection.execute(sa.update(runs).where(mine).values(changed_columns(runs, change)))
        return Commit(run_id, revision=touched.revision, last_event=touched.last_event)

    @with_retries
    def get(self, run_id: UUID) -> RunRecord:
        """Return a run; raises ``NotFoundError`` for an unknown one."""
        with reading(self._engine) as connection:
            row = connection.execute(_GET, {"id": run_id}).one_or_none()
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
        order: RunOrder = RunOrder.STARTED,
        reverse: bool = False,
        visibility: Visibility = Visibility.VISIBLE,
        limit: int = 100,
        cursor: str | None = None,
    ) -> Page[RunRecord]:
        """Return runs, newest first by default.

        Args:
            problem_id: Problem version.
            policy_id: Policy version, alone or as a proposer of an ensemble.
            state: State.
            tags: Required tags.
            name: Part of the name, ignoring case.
            order: Order of the list.
            reverse: True for the opposite order.
            visibility: Runs to list: visible, archived or deleted ones, or all.
            limit: Maximum number of items.
            cursor: Cursor of the page.

        Raises:
            InvalidInputError: The cursor belongs to another list.
        """
        chosen = run_page(order, cursor, reverse=reverse)
        clause, binds = where(
            {
                "r.problem_id = :problem_id": problem_id,
                _USES_POLICY: policy_id,
                "g.state = :state": state and state.value,
                _TAGGED: [*tags] or None,
                _NAMED: name,
                "r.project_id = :project": self.project,
                f":listed AND {visibility_condition(visibility, 'r.')}": True,
            }
        )
        query = sa.text(chosen.query(_SELECT, clause.removeprefix(" WHERE ")))
        with reading(self._engine) as connection:
            rows = connection.execute(query, {**binds, **chosen.binds, "limit": limit + 1}).all()
        return cursors.page(rows, limit, _record, chosen.cursor)

    @with_retries
    def work_in_flight(self, *, limit: int = 500) -> tuple[WorkRecord, ...]:
        """Return unfinished work, oldest first."""
        query = sa.text(
            "SELECT id, run_id, kind, state, attempt, lane, extract(epoch FROM lease_until - clock_timestamp()) AS left"
            " FROM work w WHERE state IN ('ready', 'leased', 'parked') AND (cast(:project AS uuid) IS NULL"
            " OR EXISTS (SELECT FROM runs r WHERE r.id = w.run_id AND r.project_id = :project))"
            " ORDER BY id LIMIT :limit"
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

    def queries(self) -> RunQueries:
        """Return the queries of the same database."""
        return RunQueries(self._engine, retry_for_s=self.retry_for_s)

    @with_retries
    def free_slots(self) -> int | None:
        """Return how many more runs may be under way in the project; None is unlimited."""
        with self._engine.begin() as connection:
            return free_run_slots(connection, self._home)

    @with_retries
    def unfinished(self) -> tuple[UUID, ...]:
        """Return the runs that have not ended."""
        with reading(self._engine) as connection:
            return tuple(connection.execute(UNENDED).scalars())

    def _touch(self, connection: sa.Connection, run_id: UUID) -> sa.Row[Any]:
        """Lock the progress, which is locked first, and count a commit, which invalidates pages and caches."""
        touched = connection.execute(_TOUCH, {"id": run_id}).one_or_none()
        if touched is None:
            raise NotFoundError(f"there is no run {run_id}.")
        if self.require is not None:
            self.require(touched.revision - 1, RunState(touched.state))
        return touched

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


def _require_usable(
    connection: sa.Connection, problem_id: UUID, policy_ids: Set[UUID | None], *, archived: bool
) -> None:
    """Check that a run may use its versions, and keep them from being deleted before the transaction ends.

    Raises:
        ConflictError: One is deleted, or archived unless ``archived``.
    """
    named = {"problem": problem_id, "policies": list(policy_ids - {None})}
    for row in connection.execute(_VERSIONS, named):
        require_visible(f"{row.what} {row.slug}@{row.version}", row, archived=archived)


def _stored_reason(reason: str | None) -> str | None:
    return None if reason is None else storable(reason)[:_MAX_REASON]


def _with_waiting_work(connection: sa.Connection, locked: LockedProgress, commit: Commit) -> Commit:
    if locked.progress.state is not RunState.RUNNING:
        return commit
    rows = connection.execute(_DISPATCH_READY, {"id": locked.run_id})
    refs = tuple(WorkRef(row.id, WorkKind(row.kind), retried=row.attempt > 0) for row in rows)
    return Commit(commit.run_id, refs, commit.placements, commit.revision, commit.last_event)


def _record(row: sa.Row[Any]) -> RunRecord:
    document: dict[str, Any] = row.document
    targets, spec = document["targets"], read_stored(RunSpec, document["spec"])
    confirmed = [target for i, target in enumerate(targets) if document["confirmed"] >> i & 1]
    spent = {name: document[name] for name in SpentRecord.model_fields if name != "seconds"}
    # Every other field is a column of the same name.
    return RunRecord.model_validate(
        document
        | {
            "ensembles": members(document["shares"] or [], document["arms"]),
            "spec": spec,
            "learning": _learning(document) if spec.learning is not None else None,
            "spent": SpentRecord(seconds=document["seconds_now"], **spent),
            "candidates": document["evaluated"] + document["failed"],
            "best": _best(document),
            "no_result": _no_result(document),
            "reached": tuple(target["name"] for target in confirmed),
            "unlocked": any(target["unlock"] for target in confirmed),
            "since_improvement": document["evaluations"] - document["improved_at"],
            "diagnosis": document["diagnosis"] or None,
            "last_event": document["events"],
        }
    )


def _no_result(document: Mapping[str, Any]) -> str | None:
    """Return why a completed run has no result; None for other runs."""
    seed = document["seed_failure"]
    without = document["state"] == RunState.COMPLETED and document["best_number"] is None and document["failed"]
    if not without or (document["evaluated"] and seed is None):
        return None
    head = "no candidate is feasible" if document["evaluated"] else "no candidate has rewards"
    if seed is not None:
        failure = Failure(FailureKind(seed[0]), seed[1] or "", seed[2] or "")
        fails = "the evaluator fails on the seed program" if failure.by_evaluator else "the seed program fails"
        return f"{head}: {fails}: {failure.last_line}"
    reasons: dict[str, int] = document["reasons"]
    most = max(reasons, key=reasons.__getitem__)
    return f"{head}: {reasons[most]:,} of {document['failed']:,} failed by {most}"


def _learning(document: Mapping[str, Any]) -> LearningRecord:
    state = LearningState.model_validate(document["learning"])
    slug = state.slug or learned_slug(document["policy"], UUID(document["id"]).hex)
    version = f"{slug}@{state.step}" if state.step else None
    counts = state.model_dump(include={*LearningRecord.model_fields} - {"waiting"})
    return LearningRecord(**counts, version=version, waiting=len(state.waiting))


def _best(document: Mapping[str, Any]) -> RankedCandidate | None:
    if document["best_id"] is None:
        return None
    names = [objective["name"] for objective in document["objectives"]]
    met = document["best_targets"]
    return RankedCandidate(
        id=document["best_id"],
        number=document["best_number"],
        rewards=dict(zip(names, document["best"], strict=True)),
        targets=tuple(target["name"] for i, target in enumerate(document["targets"]) if met >> i & 1),
        scalar=document["best_scalar"],
    )
