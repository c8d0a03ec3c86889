"""What a tournament's report is made of: runs and confirmed claims in arrays, problems and policies with digests."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, TypeVar
from uuid import UUID

import numpy as np
import sqlalchemy as sa

from speciate.domain.tournament import Schedule
from speciate.ports.records.declarations import TournamentRecord, TournamentRun
from speciate.storage.database import reading, with_retries
from speciate.storage.declarations.tournament_export import planned_runs
from speciate.storage.declarations.tournament_summaries import STATES, TournamentSummaries, named
from speciate.tournaments.report.build import make_matrix, make_report, make_standings
from speciate.tournaments.report.models import Matrix, PolicyFacts, ProblemFacts, Report, Standings
from speciate.tournaments.report.results import Results
from speciate.tournaments.report.run_summary import IntArray
from speciate.tournaments.statistics.arrays import FloatArray

T = TypeVar("T")

_HELD: Final = 4  # tournaments whose numbers a process holds; the largest usual one takes 30 MB

# One row whose columns are as long as what is newer: 80,000 rows would take longer to be unpacked than to be read. The
# numbers come as the server holds them, each array behind a header, each number behind its length.
_NEWER = sa.text(
    "SELECT array_agg(problem) AS problems, array_agg(seed) AS seeds,"
    " array_agg(entrant) AS entrants, array_agg(state) AS states,"
    " string_agg(array_send(numbers), ''::bytea) AS numbers FROM tournament_runs"
    " WHERE tournament_id = :id AND revision > :seen AND revision <= :now AND ord > :first AND ord <= :first + :most"
)
_REASONS = sa.text(
    "SELECT problem, seed, entrant, state, reason FROM tournament_runs"
    " WHERE tournament_id = :id AND revision > :seen AND revision <= :now AND state <> 'completed'"
)
_HEADER_BYTES: Final = 20
_NUMBER: Final = np.dtype([("bytes", ">i4"), ("value", ">f8")])
_AT_ONCE: Final = 100_000
_PROBLEMS = sa.text(
    "SELECT slug || '@' || version AS name, digest, evaluator_digest,"
    " definition ->> 'kind' = 'in_process' AS forgeable, definition -> 'targets' AS targets FROM problems"
    " WHERE slug || '@' || version = ANY(:names) AND slug = ANY(:slugs)"
    " AND project_id = (SELECT project_id FROM tournaments WHERE id = :id)"
)
_POLICIES = sa.text(
    "SELECT slug || '@' || version AS name, digest, definition ->> 'checkpoint_digest' AS checkpoint_digest,"
    " definition ->> 'training_method' AS training_method, definition -> 'training' AS training FROM policies"
    " WHERE slug || '@' || version = ANY(:names) AND slug = ANY(:slugs)"
    " AND project_id = (SELECT project_id FROM tournaments WHERE id = :id)"
)


@dataclass
class _Held:
    """What a process has read of a tournament: its numbers up to a revision, and what was last made of them."""

    schedule: Schedule
    results: Results
    seen: int = 0
    made: dict[str, tuple[int, object]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)


@dataclass
class TournamentResults(TournamentSummaries):
    """Reads what the report says.

    A process holds the numbers of the tournaments that it was last asked about and reads only what is newer, and
    answers the same question about the same revision from memory. All of it may be forgotten.
    """

    _held: OrderedDict[UUID, _Held] = field(default_factory=OrderedDict)
    _holding: Lock = field(default_factory=Lock)

    def standings(self, record: TournamentRecord) -> Standings:
        """Return who stands where."""
        return self._made(
            record, "standings", lambda held: make_standings(held.schedule, record.amendments, held.results)
        )

    def matrix(self, record: TournamentRecord) -> Matrix:
        """Return successes by problem and entrant."""
        return self._made(record, "matrix", lambda held: make_matrix(held.schedule, held.results))

    def report(self, record: TournamentRecord) -> Report:
        """Return everything."""
        return self._made(record, "report", lambda held: self._report(record, held))

    def _report(self, record: TournamentRecord, held: _Held) -> Report:
        facts = self._problems(record.id, held.schedule), self._policies(record.id, held.schedule)
        return make_report(held.schedule, record.amendments, held.results, *facts)

    def runs(self, record: TournamentRecord) -> Iterator[TournamentRun]:
        """Yield every planned run with what it says, in the order of the plan."""
        return planned_runs(self._engine, record)

    def use(self, record: TournamentRecord, look: Callable[[Schedule, Results], T]) -> T:
        """Return what ``look`` makes of all that is known; the results belong to it only while it looks."""
        held = self._hold(record)
        with held.lock:
            self._read(record, held)
            return look(held.schedule, held.results)

    def _made(self, record: TournamentRecord, what: str, make: Callable[[_Held], T]) -> T:
        held = self._hold(record)
        with held.lock:  # who asks the same meanwhile waits, and finds it made
            self._read(record, held)
            revision, made = held.made.get(what, (-1, None))
            if revision != held.seen:
                made = make(held)
                held.made[what] = held.seen, made
            return made  # type: ignore[return-value]

    def _hold(self, record: TournamentRecord) -> _Held:
        with self._holding:
            schedule, held = record.schedule, self._held.get(record.id)
            if held is None or held.schedule != schedule:  # an extension makes it larger: it is read anew
                held = self._held[record.id] = _Held(schedule, Results.empty(schedule))
            self._held.move_to_end(record.id)
            while len(self._held) > _HELD:
                self._held.popitem(last=False)
            return held

    @with_retries
    def _read(self, record: TournamentRecord, held: _Held) -> None:
        if record.revision <= held.seen:
            return
        index = _Index(held.schedule)
        with reading(self._engine) as connection:
            newer = {"id": record.id, "seen": held.seen, "now": record.revision}
            parts = [
                connection.execute(_NEWER, {**newer, "first": first, "most": _AT_ONCE}).one()
                for first in range(0, held.results.state.size, _AT_ONCE)
            ]
            missing = connection.execute(_REASONS, newer).all()
        for part in parts:
            if part.numbers is not None:
                states = np.array([STATES[state] for state in part.states], dtype=np.int8)
                at = index.places(part.problems, part.seeds, part.entrants)
                held.results.fill(at, states, _unpacked(part.numbers, len(states)))
        for row in missing:
            (p,), (s,), (e,) = index.places([row.problem], [row.seed], [row.entrant])
            held.results.reasons[int(p), int(s), int(e)] = f"{row.state}: {row.reason or 'no reason is kept'}"
        held.seen = record.revision

    @with_retries
    def _problems(self, tournament_id: UUID, schedule: Schedule) -> dict[str, ProblemFacts]:
        with reading(self._engine) as connection:
            rows = connection.execute(_PROBLEMS, {"id": tournament_id, **named(schedule.problems)}).all()
        return {row.name: _problem_facts(row, schedule.declared.target) for row in rows}

    @with_retries
    def _policies(self, tournament_id: UUID, schedule: Schedule) -> dict[str, PolicyFacts]:
        names = [name for entrant in schedule.declared.entrants for name in entrant.asked]
        with reading(self._engine) as connection:
            rows = connection.execute(_POLICIES, {"id": tournament_id, **named(names)}).all()
        return {row.name: PolicyFacts.model_validate(row._asdict()) for row in rows}


class _Index:
    """Where problems, seeds and entrants stand in the arrays."""

    def __init__(self, schedule: Schedule) -> None:
        self._problems = {name: i for i, name in enumerate(schedule.problems)}
        self._seeds = {seed: i for i, seed in enumerate(schedule.seeds)}
        self._entrants = {entrant.name: i for i, entrant in enumerate(schedule.declared.entrants)}

    def places(
        self, problems: Sequence[str], seeds: Sequence[int], entrants: Sequence[str]
    ) -> tuple[IntArray, IntArray, IntArray]:
        """Return the indices."""
        return (
            np.array([self._problems[name] for name in problems], dtype=np.int64),
            np.array([self._seeds[seed] for seed in seeds], dtype=np.int64),
            np.array([self._entrants[name] for name in entrants], dtype=np.int64),
        )


def _unpacked(raw: bytes, rows: int) -> FloatArray:
    """Return what ``array_send`` made of arrays of one length, shape (rows, width)."""
    table = np.frombuffer(raw, dtype=np.uint8).reshape(rows, -1)[:, _HEADER_BYTES:]
    numbers: FloatArray = np.ascontiguousarray(table).view(_NUMBER)["value"].astype(np.float64)
    return numbers


def _problem_facts(row: sa.Row[Any], target: str | None) -> ProblemFacts:
    unlock = next(each["name"] for each in row.targets if each["unlock"])
    return ProblemFacts(
        name=row.name,
        digest=row.digest,
        evaluator_digest=row.evaluator_digest,
        target=target or unlock,
        forgeable=row.forgeable,
    )
