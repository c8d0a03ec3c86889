"""Store tournaments: amendments, and the plan with the run started for each of its entries."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.declaration import DeclarationKind, DeclarationState
from speciate.domain.errors import ConflictError
from speciate.domain.run import RunState
from speciate.domain.tournament import Extension, PlannedRun, Schedule, Tournament
from speciate.schema.declarations import TournamentAmendment, TournamentRecord
from speciate.storage.access.quotas import lock_quota
from speciate.storage.database import with_retries
from speciate.storage.declarations.results import TournamentResults
from speciate.storage.declarations.store import DeclarationStore
from speciate.storage.declarations.summaries import RunSummaries
from speciate.storage.lookup import read_stored, require_row
from speciate.storage.statements import Statements
from speciate.storage.tables.declarations import tournaments


@dataclass(frozen=True, slots=True)
class ActiveRun:
    """A started run of a tournament that has not ended."""

    run_id: UUID
    entrant: str
    state: RunState
    reason: str | None
    waits: bool  # true if it waits for proposals from outside the service
    held: bool  # true if an engine runs on it


@dataclass(kw_only=True)
class TournamentStore(DeclarationStore[Tournament, TournamentRecord]):
    kind: ClassVar[DeclarationKind] = DeclarationKind.TOURNAMENT
    _table: ClassVar[sa.Table] = tournaments
    sql: ClassVar[Statements] = Statements(__file__)

    summaries: RunSummaries
    results: TournamentResults

    def _fill(self, connection: sa.Connection, new_id: UUID, declared: Tournament) -> None:
        plan = list(Schedule.of(declared).plan())
        self._require_quota(connection, declared, len(plan))
        self._add_runs(connection, new_id, 0, plan)

    def _require_quota(self, connection: sa.Connection, declared: Tournament, runs: int) -> None:
        budget = declared.budget
        evaluations, tokens = (None if each is None else runs * each for each in (budget.evaluations, budget.tokens))
        lock_quota(connection, self._home).require(connection, evaluations, tokens)

    def _record(self, connection: sa.Connection, row: sa.Row[Any]) -> TournamentRecord:
        rows = connection.execute(self.sql.amendments, {"id": row.id})
        amendments = tuple(TournamentAmendment.model_validate(each._asdict()) for each in rows)
        values = {**row._asdict(), "declaration": read_stored(Tournament, row.declaration), "amendments": amendments}
        return TournamentRecord.model_validate(values)

    def _has_open_work(self, connection: sa.Connection, declared_id: UUID) -> bool:
        return connection.execute(self.sql.open_work, {"id": declared_id}).one_or_none() is not None

    @with_retries
    def extend(self, tournament_id: UUID, extension: Extension) -> None:
        """Add problems or seeds with pinned names, and record the amendment; the tournament continues at once.

        Raises:
            NotFoundError: It does not exist.
            ConflictError: It was cancelled or decided, or the extension does not fit.
        """
        with self._engine.begin() as connection:
            locked = self._lock(connection, tournament_id)
            row = require_row(self._read(connection, tournament_id), f"tournament {tournament_id}")
            record = self._record(connection, row)
            decided = record.state is DeclarationState.COMPLETED and record.reason
            if record.state is DeclarationState.CANCELLED or decided:
                why = "decided" if decided else "cancelled"
                raise ConflictError(f"tournament {locked.slug!r} was {why}.", remedy="Declare another one.")
            before = record.schedule
            planned_before = {*before.plan()}
            added = [planned for planned in before.extended(extension).plan() if planned not in planned_before]
            self._require_quota(connection, record.declaration, len(added))
            amendment = {"ord": len(record.amendments) + 1, "extension": extension.stored_json()}
            amendment |= {"id": tournament_id, "ended_runs": record.ended}
            connection.execute(self.sql.add_amendment, amendment)
            self._add_runs(connection, tournament_id, record.planned, added)
            if record.state is DeclarationState.COMPLETED:
                self._set_state(connection, tournament_id, DeclarationState.RUNNING, None)

    def active_runs(self, tournament_id: UUID) -> tuple[ActiveRun, ...]:
        """Return the started runs that have not ended."""
        rows = self._rows(self.sql.active_runs, {"id": tournament_id})
        return tuple(ActiveRun(**{**row._asdict(), "state": RunState(row.state)}) for row in rows)

    def next(self, tournament_id: UUID, limit: int, without: Sequence[str] = ()) -> tuple[tuple[int, PlannedRun], ...]:
        """Return the next runs of the plan to start, ``without`` those of some entrants, with their positions."""
        rows = self._rows(self.sql.next_runs, {"id": tournament_id, "limit": limit, "without": list(without)})
        return tuple((row.ord, PlannedRun(row.problem, row.seed, row.entrant)) for row in rows)

    def attach(self, tournament_id: UUID, ordinal: int, run_id: UUID) -> None:
        """Record the run that was started for a position of the plan."""
        self._execute(self.sql.attach, {"id": tournament_id, "ord": ordinal, "run_id": run_id})

    def leading_ended(self, tournament_id: UUID) -> int | None:
        """Return how many leading runs of the plan have ended; None if all have."""
        first = self._value(self.sql.open_work, {"id": tournament_id})
        return None if first is None else int(first) - 1

    def _add_runs(self, connection: sa.Connection, tournament_id: UUID, first: int, plan: Sequence[PlannedRun]) -> None:
        keys = {
            "id": tournament_id,
            "first": first,
            "entrants": [run.entrant for run in plan],
            "problems": [run.problem for run in plan],
            "seeds": [run.seed for run in plan],
        }
        connection.execute(self.sql.add_runs, keys)
