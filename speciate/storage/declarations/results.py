"""Read the results of tournaments: reports from the summaries of ended runs, and every planned run for export."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, Final, TypeVar
from uuid import UUID

import numpy as np
import sqlalchemy as sa

from speciate.domain.arrays import FloatArray, IntArray
from speciate.domain.tournament import Schedule
from speciate.schema.declarations import TournamentRecord, TournamentRun
from speciate.storage.database import Store, reading, with_retries
from speciate.storage.declarations.summaries import STATES, versions_by_name
from speciate.storage.lookup import attested_sql
from speciate.storage.statements import Statements
from speciate.tournaments.report.build import make_matrix, make_report, make_standings
from speciate.tournaments.report.models import Matrix, PolicyFacts, ProblemFacts, Report, Standings
from speciate.tournaments.report.results import Results
from speciate.tournaments.report.run_summary import RUN_NUMBERS

T = TypeVar("T")

_MAX_CACHED: Final = 4  # tournaments; a large one takes 30 MB

SQL = Statements(__file__, attested=attested_sql(""))
_HEADER_BYTES: Final = 20
_NUMBER: Final = np.dtype([("bytes", ">i4"), ("value", ">f8")])
_CHUNK: Final = 100_000
_EXPORT_CHUNK: Final = 2000


@dataclass
class _Cached:
    """Results of a tournament up to a revision, and the reports last made from them."""

    schedule: Schedule
    results: Results
    seen: int = 0
    derived: dict[str, tuple[int, object]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)


@dataclass
class TournamentResults(Store):
    """Reads reports of tournaments.

    A process caches the numbers of the most recently read tournaments, reads only newer ones, and caches each report
    by revision. The cache may be lost at any time.
    """

    _cache: OrderedDict[UUID, _Cached] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def standings(self, record: TournamentRecord) -> Standings:
        """Return the standings."""
        return self._derived(
            record, "standings", lambda cached: make_standings(cached.schedule, record.amendments, cached.results)
        )

    def matrix(self, record: TournamentRecord) -> Matrix:
        """Return the successes by problem and entrant."""
        return self._derived(record, "matrix", lambda cached: make_matrix(cached.schedule, cached.results))

    def report(self, record: TournamentRecord) -> Report:
        """Return the whole report."""
        return self._derived(record, "report", lambda cached: self._report(record, cached))

    def _report(self, record: TournamentRecord, cached: _Cached) -> Report:
        facts = self._problems(record.id, cached.schedule), self._policies(record.id, cached.schedule)
        return make_report(cached.schedule, record.amendments, cached.results, *facts)

    def runs(self, record: TournamentRecord) -> Iterator[TournamentRun]:
        """Yield every planned run with its results, in the order of the plan, without holding them all."""
        last = 0
        entrants = {entrant.name: (entrant.strategy, *entrant.role_labels()) for entrant in record.declaration.entrants}
        while True:
            rows = self._rows(SQL.runs, {"id": record.id, "last": last, "limit": _EXPORT_CHUNK})
            for row in rows:
                yield _run(record.slug, row, *entrants[row.entrant])
            if len(rows) < _EXPORT_CHUNK:
                return
            last = rows[-1].ord

    def use(self, record: TournamentRecord, look: Callable[[Schedule, Results], T]) -> T:
        """Return ``look`` of all results; it must not keep a reference to them."""
        cached = self._cached(record)
        with cached.lock:
            self._read(record, cached)
            return look(cached.schedule, cached.results)

    def _derived(self, record: TournamentRecord, what: str, make: Callable[[_Cached], T]) -> T:
        cached = self._cached(record)
        with cached.lock:  # a concurrent reader waits and finds the result
            self._read(record, cached)
            revision, result = cached.derived.get(what, (-1, None))
            if revision != cached.seen:
                result = make(cached)
                cached.derived[what] = cached.seen, result
            return result  # type: ignore[return-value]

    def _cached(self, record: TournamentRecord) -> _Cached:
        with self._lock:
            schedule, cached = record.schedule, self._cache.get(record.id)
            if cached is None or cached.schedule != schedule:  # extended: read again
                cached = self._cache[record.id] = _Cached(schedule, Results.empty(schedule))
            self._cache.move_to_end(record.id)
            while len(self._cache) > _MAX_CACHED:
                self._cache.popitem(last=False)
            return cached

    @with_retries
    def _read(self, record: TournamentRecord, cached: _Cached) -> None:
        if record.revision <= cached.seen:
            return
        index = _Index(cached.schedule)
        with reading(self._engine) as connection:
            newer = {"id": record.id, "seen": cached.seen, "now": record.revision}
            parts = [
                connection.execute(SQL.newer, {**newer, "first": first, "most": _CHUNK}).one()
                for first in range(0, cached.results.state.size, _CHUNK)
            ]
            missing = connection.execute(SQL.reasons, newer).all()
        for part in parts:
            if part.numbers is not None:
                states = np.array([STATES[state] for state in part.states], dtype=np.int8)
                at = index.places(part.problems, part.seeds, part.entrants)
                cached.results.fill(at, states, _unpacked(part.numbers, len(states)))
        for row in missing:
            (p,), (s,), (e,) = index.places([row.problem], [row.seed], [row.entrant])
            cached.results.reasons[int(p), int(s), int(e)] = f"{row.state}: {row.reason or 'no reason is kept'}"
        cached.seen = record.revision

    def _problems(self, tournament_id: UUID, schedule: Schedule) -> dict[str, ProblemFacts]:
        rows = self._rows(SQL.problems, {"id": tournament_id, **versions_by_name(schedule.problems)})
        return {row.name: _problem_facts(row, schedule.declared.target) for row in rows}

    def _policies(self, tournament_id: UUID, schedule: Schedule) -> dict[str, PolicyFacts]:
        names = [name for entrant in schedule.declared.entrants for name in entrant.policy_names]
        rows = self._rows(SQL.policies, {"id": tournament_id, **versions_by_name(names)})
        return {row.name: PolicyFacts.model_validate(row._asdict()) for row in rows}


class _Index:
    """Positions of problems, seeds and entrants in the arrays."""

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
    """Decode arrays of one length as ``array_send`` encodes them; shape (rows, width)."""
    table = np.frombuffer(raw, dtype=np.uint8).reshape(rows, -1)[:, _HEADER_BYTES:]
    numbers: FloatArray = np.ascontiguousarray(table).view(_NUMBER)["value"].astype(np.float64)
    return numbers


def _problem_facts(row: sa.Row[Any], target: str | None) -> ProblemFacts:
    unlock = next(each["name"] for each in row.targets if each["unlock"])
    return ProblemFacts.model_validate({**row._asdict(), "target": target or unlock})


def _run(slug: str, row: sa.Row[Any], strategy: str, policy: str, mutator: str | None) -> TournamentRun:
    numbers = dict(zip(RUN_NUMBERS, row.numbers or (), strict=False))
    return TournamentRun.model_validate(
        row._asdict()
        | {
            "tournament": slug,
            "number": row.ord,
            "policy": policy,
            "mutator": mutator,
            "strategy": strategy,
            "state": row.state or ("planned" if row.run_id is None else "under way"),
            **{name: None if math.isnan(value) else value for name, value in numbers.items()},
        }
    )
