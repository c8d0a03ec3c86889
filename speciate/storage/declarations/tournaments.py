"""Tournaments on PostgreSQL: declarations, amendments, and the plan with the runs that were started for it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.declaration import DeclarationKind, DeclarationState, check_transition, paused_with
from speciate.domain.errors import ConflictError, NotFoundError
from speciate.domain.tournament import Extension, PlannedRun, Tournament
from speciate.ports.records.base import Page
from speciate.ports.records.declarations import TournamentAmendment, TournamentRecord
from speciate.storage.access.quotas import hold_quota
from speciate.storage.database import reading, with_retries
from speciate.storage.declarations.declared import declare, lock, page, project_of, set_state, set_waiting, tell_fault
from speciate.storage.rows import named, read_stored, uuid7
from speciate.storage.tables import DEFAULT_PROJECT_ID, tournament_amendments, tournaments

_SELECT = """
SELECT t.*, n.planned, n.started, n.ended FROM tournaments t CROSS JOIN LATERAL (
  SELECT count(*) AS planned, count(r.run_id) AS started,
    count(*) FILTER (WHERE r.ended) AS ended
  FROM tournament_runs r WHERE r.tournament_id = t.id) n
"""
_PLAN = sa.text(
    "INSERT INTO tournament_runs (tournament_id, ord, entrant, problem, seed)"
    " SELECT :id, :first + p.ord, p.entrant, p.problem, p.seed FROM"
    " unnest(cast(:entrants AS text[]), cast(:problems AS text[]), cast(:seeds AS bigint[]))"
    " WITH ORDINALITY AS p (entrant, problem, seed, ord)"
)
# What asks for something: whatever runs, and whatever stopped while some of its runs did not.
_TENDED = sa.text(
    "SELECT id FROM tournaments t WHERE state = 'running' OR EXISTS (SELECT 1 FROM tournament_runs r"
    " WHERE r.tournament_id = t.id AND NOT r.ended AND r.run_id IS NOT NULL) ORDER BY id"
)
_UNDER_WAY = sa.text(
    "SELECT r.run_id, p.state, p.reason FROM tournament_runs r JOIN run_progress p ON p.run_id = r.run_id"
    " WHERE r.tournament_id = :id AND NOT r.ended ORDER BY r.ord"
)
_NEXT = sa.text(
    "SELECT ord, entrant, problem, seed FROM tournament_runs WHERE tournament_id = :id AND NOT ended"
    " AND run_id IS NULL ORDER BY ord LIMIT :limit"
)
# What was paused for a reason of its own (an endpoint that was gone, a full disk) goes on with its tournament.
_TAKE_ALONG = sa.text(
    "UPDATE run_progress SET reason = :told WHERE state = 'paused' AND run_id IN"
    " (SELECT run_id FROM tournament_runs WHERE tournament_id = :id AND NOT ended)"
)
_ATTACH = sa.text("UPDATE tournament_runs SET run_id = :run_id WHERE tournament_id = :id AND ord = :ord")
_FIRST_OPEN = sa.text("SELECT ord FROM tournament_runs WHERE tournament_id = :id AND NOT ended ORDER BY ord LIMIT 1")


@dataclass(frozen=True, slots=True)
class UnderWay:
    """A run that was started for a tournament and has not ended."""

    run_id: UUID
    state: str
    reason: str | None


@dataclass
class TournamentStore:
    """Declares, steers and reads tournaments; control starts their runs.

    Attributes:
        retry_for_s: Seconds to retry a call while the server restarts.
        project: The project that is seen; None sees ids of all, and names of the default one.
    """

    _engine: sa.Engine
    retry_for_s: float = 5.0
    project: UUID | None = None

    def create(
        self, declared: Tournament, *, request_digest: str, idempotency_key: str | None = None
    ) -> tuple[UUID, bool]:
        """Store a declaration, with names that are pinned to versions, and its plan; it begins at once.

        Returns:
            The id, and whether it is new: the same declaration again is the same tournament.

        Raises:
            ConflictError: The name is taken by another declaration, or the key was used for another request.
        """
        # Drawn outside what is repeated after a lost connection, so that a repetition finds what it did before.
        return self._create(uuid7(), declared, request_digest, idempotency_key)

    @with_retries
    def _create(self, new_id: UUID, declared: Tournament, request_digest: str, key: str | None) -> tuple[UUID, bool]:
        with self._engine.begin() as connection:
            return declare(
                connection,
                tournaments,
                new_id,
                declared,
                project=self.project,
                noun="tournament",
                request_digest=request_digest,
                key=key,
                fill=lambda: self._fill(connection, new_id, declared),
            )

    def _fill(self, connection: sa.Connection, new_id: UUID, declared: Tournament) -> None:
        plan = list(declared.plan(declared.running_order(declared.problems), declared.seeds))
        self._require_quota(connection, declared, len(plan))
        _add_plan(connection, new_id, 0, plan)

    def _require_quota(self, connection: sa.Connection, declared: Tournament, runs: int) -> None:
        budget = declared.budget
        evaluations, tokens = (None if each is None else runs * each for each in (budget.evaluations, budget.tokens))
        hold_quota(connection, self.project or DEFAULT_PROJECT_ID).require(connection, evaluations, tokens)

    @with_retries
    def get(self, name: str | UUID) -> TournamentRecord:
        """Return a tournament by id or name.

        Raises:
            NotFoundError: There is none.
        """
        with reading(self._engine) as connection:
            return _find(connection, name, self.project)

    @with_retries
    def project_of(self, tournament_id: UUID) -> UUID:
        """Return the project that it was declared in."""
        with reading(self._engine) as connection:
            return project_of(connection, tournaments, tournament_id)

    @with_retries
    def list(
        self, *, state: DeclarationState | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[TournamentRecord]:
        """Return tournaments, newest first."""
        with reading(self._engine) as connection:
            return page(
                connection,
                _SELECT,
                lambda row: _record(connection, row),
                state=state,
                project=self.project,
                limit=limit,
                cursor=cursor,
            )

    @with_retries
    def move(
        self, tournament_id: UUID, goal: DeclarationState, reason: str | None = None, *, fault: bool = False
    ) -> None:
        """Pause, resume or cancel it; control then does the same with its runs, whatever they were paused for.

        Raises:
            NotFoundError: There is none.
            ConflictError: Its state does not allow it.
        """
        with self._engine.begin() as connection:
            row = lock(connection, tournaments, tournament_id, noun="tournament")
            check_transition(DeclarationKind.TOURNAMENT, row.slug, DeclarationState(row.state), goal)
            set_state(connection, tournaments, tournament_id, goal, reason)
            if fault:
                tell_fault(connection, row, "tournament", reason)
            if goal is DeclarationState.RUNNING:
                connection.execute(
                    _TAKE_ALONG, {"id": tournament_id, "told": paused_with(DeclarationKind.TOURNAMENT, row.slug)}
                )

    @with_retries
    def complete(self, tournament_id: UUID, reason: str | None = None) -> bool:
        """Complete a running tournament, at once where there is a reason, else if none of its runs is open.

        Returns:
            Whether it is completed now.
        """
        with self._engine.begin() as connection:
            row = lock(connection, tournaments, tournament_id, noun="tournament")
            opened = connection.execute(_FIRST_OPEN, {"id": tournament_id}).one_or_none()
            if row.state != DeclarationState.RUNNING.value or (reason is None and opened is not None):
                return False
            set_state(connection, tournaments, tournament_id, DeclarationState.COMPLETED, reason)
            return True

    @with_retries
    def extend(self, tournament_id: UUID, extension: Extension) -> None:
        """Add problems or seeds, with names that are pinned to versions, and record it; it goes on at once.

        Raises:
            NotFoundError: There is none.
            ConflictError: It was cancelled or decided, or what is added does not fit.
        """
        with self._engine.begin() as connection:
            row = lock(connection, tournaments, tournament_id, noun="tournament")
            record = _find(connection, tournament_id, None)
            if row.state == DeclarationState.CANCELLED.value or (row.state == "completed" and row.reason):
                why = "was cancelled" if row.state == "cancelled" else "was decided"
                raise ConflictError(f"tournament {row.slug!r} {why}.", remedy="Declare another one.")
            before = record.schedule
            known = {*before.plan()}
            added = [planned for planned in before.extended(extension).plan() if planned not in known]
            self._require_quota(connection, record.declaration, len(added))
            connection.execute(
                sa.insert(tournament_amendments).values(
                    tournament_id=tournament_id,
                    ord=len(record.amendments) + 1,
                    extension=extension.stored_json(),
                    ended_runs=record.ended,
                )
            )
            _add_plan(connection, tournament_id, record.planned, added)
            if row.state == DeclarationState.COMPLETED.value:
                set_state(connection, tournaments, tournament_id, DeclarationState.RUNNING, None)

    @with_retries
    def wait(self, tournament_id: UUID, reason: str | None) -> None:
        """Say why it starts nothing just now though it goes on; None takes that back."""
        with self._engine.begin() as connection:
            set_waiting(connection, tournaments, tournament_id, reason)

    @with_retries
    def pending(self) -> tuple[UUID, ...]:
        """Return the tournaments that control has something to do for."""
        with reading(self._engine) as connection:
            return tuple(connection.execute(_TENDED).scalars())

    @with_retries
    def under_way(self, tournament_id: UUID) -> tuple[UnderWay, ...]:
        """Return runs that were started and have not ended."""
        with reading(self._engine) as connection:
            rows = connection.execute(_UNDER_WAY, {"id": tournament_id})
            return tuple(UnderWay(row.run_id, row.state, row.reason) for row in rows)

    @with_retries
    def next(self, tournament_id: UUID, limit: int) -> tuple[tuple[int, PlannedRun], ...]:
        """Return the next runs of the plan that were not started, with their places in it."""
        with reading(self._engine) as connection:
            rows = connection.execute(_NEXT, {"id": tournament_id, "limit": limit})
            return tuple((row.ord, PlannedRun(row.problem, row.seed, row.entrant)) for row in rows)

    @with_retries
    def attach(self, tournament_id: UUID, ordinal: int, run_id: UUID) -> None:
        """Note that a run was started for a place of the plan."""
        with self._engine.begin() as connection:
            connection.execute(_ATTACH, {"id": tournament_id, "ord": ordinal, "run_id": run_id})

    @with_retries
    def complete_runs(self, tournament_id: UUID) -> int | None:
        """Return how many leading runs of the plan have ended; None where all have."""
        with reading(self._engine) as connection:
            first = connection.execute(_FIRST_OPEN, {"id": tournament_id}).scalar_one_or_none()
        return None if first is None else int(first) - 1


def _add_plan(connection: sa.Connection, tournament_id: UUID, first: int, plan: Iterable[PlannedRun]) -> None:
    rows = list(plan)
    binds = {
        "id": tournament_id,
        "first": first,
        "entrants": [row.entrant for row in rows],
        "problems": [row.problem for row in rows],
        "seeds": [row.seed for row in rows],
    }
    connection.execute(_PLAN, binds)


def _find(connection: sa.Connection, name: str | UUID, project: UUID | None) -> TournamentRecord:
    found = sa.select(tournaments.c.id).where(named(tournaments, name, project))
    binds = {"id": connection.execute(found).scalar_one_or_none()}
    row = connection.execute(sa.text(f"{_SELECT} WHERE t.id = :id"), binds).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no tournament {str(name)!r}.")
    return _record(connection, row)


def _record(connection: sa.Connection, row: sa.Row[Any]) -> TournamentRecord:
    query = (
        sa.select(tournament_amendments)
        .where(tournament_amendments.c.tournament_id == row.id)
        .order_by(tournament_amendments.c.ord)
    )
    amendments = tuple(
        TournamentAmendment(extension=each.extension, ended_runs=each.ended_runs, created_at=each.created_at)
        for each in connection.execute(query)
    )
    return TournamentRecord(
        id=row.id,
        slug=row.slug,
        declaration=read_stored(Tournament, row.declaration),
        digest=row.digest,
        state=DeclarationState(row.state),
        reason=row.reason,
        created_at=row.created_at,
        finished_at=row.finished_at,
        amendments=amendments,
        planned=row.planned,
        started=row.started,
        ended=row.ended,
        revision=row.revision,
    )
