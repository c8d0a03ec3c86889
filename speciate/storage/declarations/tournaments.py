"""Store tournaments: amendments, and the plan with the run started for each of its entries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.declaration import DeclarationKind, DeclarationState, paused_with
from speciate.domain.errors import ConflictError, NotFoundError
from speciate.domain.run import RunState
from speciate.domain.tournament import Extension, PlannedRun, Tournament
from speciate.schema.declarations import TournamentAmendment, TournamentRecord
from speciate.storage.access.quotas import lock_quota
from speciate.storage.database import reading, with_retries
from speciate.storage.declarations.results import TournamentResults
from speciate.storage.declarations.store import DeclarationStore
from speciate.storage.declarations.summaries import RunSummaries
from speciate.storage.lookup import read_stored
from speciate.storage.tables import tournament_amendments, tournaments

_PLAN = sa.text(
    "INSERT INTO tournament_runs (tournament_id, ord, entrant, problem, seed)"
    " SELECT :id, :first + p.ord, p.entrant, p.problem, p.seed FROM"
    " unnest(cast(:entrants AS text[]), cast(:problems AS text[]), cast(:seeds AS bigint[]))"
    " WITH ORDINALITY AS p (entrant, problem, seed, ord)"
)
_ACTIVE = sa.text(
    "SELECT r.run_id, p.state, p.reason FROM tournament_runs r JOIN run_progress p ON p.run_id = r.run_id"
    " WHERE r.tournament_id = :id AND NOT r.ended ORDER BY r.ord"
)
_NEXT = sa.text(
    "SELECT ord, entrant, problem, seed FROM tournament_runs WHERE tournament_id = :id AND NOT ended"
    " AND run_id IS NULL ORDER BY ord LIMIT :limit"
)
# A run that was paused for another reason (an unavailable endpoint, a full disk) resumes with its tournament.
_ADOPT_PAUSED = sa.text(
    "UPDATE run_progress SET reason = :reason WHERE state = 'paused' AND run_id IN"
    " (SELECT run_id FROM tournament_runs WHERE tournament_id = :id AND NOT ended)"
)
_ATTACH = sa.text("UPDATE tournament_runs SET run_id = :run_id WHERE tournament_id = :id AND ord = :ord")
_FIRST_OPEN = sa.text("SELECT ord FROM tournament_runs WHERE tournament_id = :id AND NOT ended ORDER BY ord LIMIT 1")


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A started run of a tournament that has not ended."""

    run_id: UUID
    state: RunState
    reason: str | None


@dataclass(kw_only=True)
class TournamentStore(DeclarationStore[Tournament, TournamentRecord]):
    """Store of tournaments, their plans and amendments.

    Attributes:
        summaries: Writes the summaries of ended runs.
        results: Reads reports from the summaries.
    """

    kind: ClassVar[DeclarationKind] = DeclarationKind.TOURNAMENT
    _table: ClassVar[sa.Table] = tournaments
    _select: ClassVar[str] = """
SELECT d.*, n.planned, n.started, n.ended FROM tournaments d CROSS JOIN LATERAL (
  SELECT count(*) AS planned, count(r.run_id) AS started, count(*) FILTER (WHERE r.ended) AS ended
  FROM tournament_runs r WHERE r.tournament_id = d.id) n
"""
    # Running tournaments, and others with an open run.
    pending_query: ClassVar[sa.TextClause] = sa.text(
        "SELECT id FROM tournaments t WHERE state = 'running' OR EXISTS (SELECT 1 FROM tournament_runs r"
        " WHERE r.tournament_id = t.id AND NOT r.ended AND r.run_id IS NOT NULL) ORDER BY id"
    )

    _open_work: ClassVar[sa.TextClause | None] = _FIRST_OPEN

    summaries: RunSummaries
    results: TournamentResults

    def _fill(self, connection: sa.Connection, new_id: UUID, declared: Tournament) -> None:
        plan = list(declared.plan(declared.running_order(declared.problems), declared.seeds))
        self._require_quota(connection, declared, len(plan))
        _add_plan(connection, new_id, 0, plan)

    def _require_quota(self, connection: sa.Connection, declared: Tournament, runs: int) -> None:
        budget = declared.budget
        evaluations, tokens = (None if each is None else runs * each for each in (budget.evaluations, budget.tokens))
        lock_quota(connection, self._home).require(connection, evaluations, tokens)

    def _record(self, connection: sa.Connection, row: sa.Row[Any]) -> TournamentRecord:
        query = (
            sa.select(tournament_amendments)
            .where(tournament_amendments.c.tournament_id == row.id)
            .order_by(tournament_amendments.c.ord)
        )
        amendments = tuple(
            TournamentAmendment(extension=each.extension, ended_runs=each.ended_runs, created_at=each.created_at)
            for each in connection.execute(query)
        )
        values = {**row._asdict(), "declaration": read_stored(Tournament, row.declaration), "amendments": amendments}
        return TournamentRecord.model_validate(values)

    def _resumed(self, connection: sa.Connection, row: sa.Row[Any]) -> None:
        connection.execute(_ADOPT_PAUSED, {"id": row.id, "reason": paused_with(self.kind, row.slug)})

    @with_retries
    def extend(self, tournament_id: UUID, extension: Extension) -> None:
        """Add problems or seeds with pinned names, and record the amendment; the tournament continues at once.

        Raises:
            NotFoundError: It does not exist.
            ConflictError: It was cancelled or decided, or the extension does not fit.
        """
        with self._engine.begin() as connection:
            locked = self._lock(connection, tournament_id)
            row = self._row(connection, tournament_id)
            if row is None:
                raise NotFoundError(f"there is no tournament {tournament_id}.")
            record = self._record(connection, row)
            decided = record.state is DeclarationState.COMPLETED and record.reason
            if record.state is DeclarationState.CANCELLED or decided:
                why = "decided" if decided else "cancelled"
                raise ConflictError(f"tournament {locked.slug!r} was {why}.", remedy="Declare another one.")
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
            if record.state is DeclarationState.COMPLETED:
                self._set_state(connection, tournament_id, DeclarationState.RUNNING, None)

    @with_retries
    def active_runs(self, tournament_id: UUID) -> tuple[ActiveRun, ...]:
        """Return the started runs that have not ended."""
        with reading(self._engine) as connection:
            rows = connection.execute(_ACTIVE, {"id": tournament_id})
            return tuple(ActiveRun(row.run_id, RunState(row.state), row.reason) for row in rows)

    @with_retries
    def next(self, tournament_id: UUID, limit: int) -> tuple[tuple[int, PlannedRun], ...]:
        """Return the next runs of the plan to start, with their positions."""
        with reading(self._engine) as connection:
            rows = connection.execute(_NEXT, {"id": tournament_id, "limit": limit})
            return tuple((row.ord, PlannedRun(row.problem, row.seed, row.entrant)) for row in rows)

    @with_retries
    def attach(self, tournament_id: UUID, ordinal: int, run_id: UUID) -> None:
        """Record the run that was started for a position of the plan."""
        with self._engine.begin() as connection:
            connection.execute(_ATTACH, {"id": tournament_id, "ord": ordinal, "run_id": run_id})

    @with_retries
    def leading_ended(self, tournament_id: UUID) -> int | None:
        """Return how many leading runs of the plan have ended; None if all have."""
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
