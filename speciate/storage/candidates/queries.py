"""Read the candidates of a run: pages, single ones with their texts, front, archive, ancestors and export."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.arrays import np
from speciate.domain.candidate import UNMEASURED, Proposal
from speciate.domain.reward import large_front
from speciate.runs.payloads import read_proposals
from speciate.schema.base import Page
from speciate.schema.candidates import ArchiveCell, CandidateDetail, CandidateRecord, RolloutAnswer
from speciate.schema.runs import RankedCandidate
from speciate.storage import cursors
from speciate.storage.candidates.arrays import ArrayReader
from speciate.storage.candidates.listing import NO_FILTER, CandidateFilter, listing
from speciate.storage.candidates.rows import columns_of, frozen
from speciate.storage.database import Store, reading, with_retries
from speciate.storage.lookup import require_row
from speciate.storage.runs.context import ScoringSchema, load_scoring_schema
from speciate.storage.statements import Statements

SQL = Statements(
    __file__,
    record=columns_of(CandidateRecord),
    detail=columns_of(CandidateDetail),
    answer=columns_of(RolloutAnswer),
    not_measured=f"'{UNMEASURED}'",
)


@dataclass(frozen=True, slots=True)
class WaitingBatch:
    """A batch of proposals whose evaluation is not finished."""

    first: int
    """Number of its first candidate."""
    proposals: Sequence[Proposal]
    leased: bool
    """True while a worker evaluates it."""
    external: bool
    """True if it waits for external evaluators."""

    @property
    def numbers(self) -> tuple[int, int]:
        """Numbers of the first and of the last candidate."""
        return self.first, self.first + len(self.proposals) - 1


@dataclass
class CandidateQueries(Store):
    def __post_init__(self) -> None:
        self._scoring = lru_cache(maxsize=2048)(self._load_scoring)

    def candidates(
        self, run_id: UUID, filters: CandidateFilter = NO_FILTER, *, limit: int = 100, cursor: str | None = None
    ) -> Page[CandidateRecord]:
        """Return candidates of a run by filter and order.

        Raises:
            InvalidInputError: See ``listing.listing``.
            NotFoundError: No such run exists.
        """
        scoring = self._scoring(run_id)
        query = listing(filters, scoring, cursor)
        statement = SQL.build("candidates", best=query.best, conditions=query.where, order=query.order)
        rows = self._rows(statement, {**query.binds, "run_id": run_id, "limit": limit + 1})
        return cursors.page(rows, limit, lambda row: CandidateRecord(**_values(scoring, row)), query.cursor)

    def candidate(self, candidate_id: UUID) -> CandidateDetail:
        """Return a candidate with its texts; raises ``NotFoundError`` for an unknown one."""
        return self._detail(SQL.candidate, {"id": candidate_id}, f"candidate {candidate_id}")

    def candidate_of(self, run_id: UUID, number: int) -> CandidateDetail:
        """Return a candidate by run and number; raises as ``candidate`` does."""
        keys = {"run_id": run_id, "number": number}
        return self._detail(SQL.candidate_of, keys, f"candidate {number} in run {run_id}")

    def waiting_batch(self, run_id: UUID, number: int) -> WaitingBatch | None:
        """Return the batch of a candidate that waits for its evaluation or is evaluated, or None."""
        row = self._row(SQL.waiting_batch, {"run_id": run_id, "number": number})
        if row is None:
            return None
        proposals = read_proposals(row.payload)
        return WaitingBatch(row.payload["first"], proposals, row.state == "leased", row.state == "parked")

    def ancestors(self, candidate: CandidateRecord, limit: int) -> tuple[CandidateRecord, ...]:
        """Return at most ``limit`` distinct ancestors of a candidate, newest first."""
        scoring = self._scoring(candidate.run_id)
        keys = {"id": candidate.id, "run_id": candidate.run_id, "limit": limit}
        return tuple(CandidateRecord(**_values(scoring, row)) for row in self._rows(SQL.ancestors, keys))

    def front(self, run_id: UUID, limit: int = 1000) -> tuple[RankedCandidate, ...]:
        """Return at most ``limit`` candidates of the Pareto front, best first; feasible ones only, if there are any.

        With noisy rewards it is the front of the archive's bounds, and the best candidate (ADR 64).
        """
        scoring = self._scoring(run_id)
        space, merit = scoring.space, scoring.ranking.merit
        if bounds := {row.number: row.rewards for row in self._rows(SQL.bounds, {"run_id": run_id})}:
            numbers = np.array([*bounds])[large_front(space.normalise([*bounds.values()]))].tolist()
        else:
            arrays = ArrayReader(self._engine).arrays(run_id, len(space.objectives))
            numbers = arrays.number[arrays.front(space)].tolist()
        rows = self._rows(SQL.ranked, {"run_id": run_id, "numbers": numbers, "noisy": bool(bounds)})
        if bounds and len(space.selected) == 1:  # luck may have raised the others, which no evaluation has corrected
            rows = [row for row in rows if row.best] or rows
        ranks = {r.number: (r.best, merit(bounds.get(r.number, r.rewards), r.met), -r.number) for r in rows}
        return tuple(scoring.ranked(r) for r in sorted(rows, key=lambda r: ranks[r.number], reverse=True)[:limit])

    def programs(self, run_id: UUID, numbers: Sequence[int]) -> dict[int, str]:
        """Return the programs of candidates by number; those that retention deleted are empty."""
        rows = self._rows(SQL.programs, {"run_id": run_id, "numbers": list(numbers)})
        return {row.number: row.program for row in rows}

    def archive(self, run_id: UUID) -> tuple[ArchiveCell, ...]:
        """Return every cell with its elite, by island and cell."""
        scoring = self._scoring(run_id)
        return tuple(
            ArchiveCell(island=row.island, cell=row.cell, fitness=row.fitness, elite=scoring.ranked(row))
            for row in self._rows(SQL.archive, {"run_id": run_id})
        )

    def export(self, run_id: UUID) -> Iterator[CandidateDetail]:
        """Stream every candidate of a run with its texts, by number."""
        last, scoring = 0, self._scoring(run_id)
        labels = self._rows(SQL.labels, {"run_id": run_id})[0]._asdict()
        while True:
            rows = self._rows(SQL.export, {"run_id": run_id, "last": last})
            for row in rows:
                yield CandidateDetail(**_values(scoring, row), **labels)
            if not rows:
                return
            last = rows[-1].number

    def answers(
        self, connection: sa.Connection, run_id: UUID, numbers: Sequence[int]
    ) -> dict[UUID, list[RolloutAnswer]]:
        """Return the candidates that completions gave, by id of the rollout."""
        scoring, answers = self._scoring(run_id), dict[UUID, list[RolloutAnswer]]()
        for row in connection.execute(SQL.answers, {"run_id": run_id, "numbers": numbers}):
            answers.setdefault(row.rollout_id, []).append(RolloutAnswer.model_validate(_values(scoring, row)))
        return answers

    def _detail(self, statement: sa.TextClause, keys: Mapping[str, Any], what: str) -> CandidateDetail:
        row = require_row(self._row(statement, keys), what)
        return CandidateDetail(**_values(self._scoring(row.run_id), row))

    @with_retries
    def _load_scoring(self, run_id: UUID) -> ScoringSchema:
        with reading(self._engine) as connection:
            return load_scoring_schema(connection, run_id)


def _values(scoring: ScoringSchema, row: sa.Row[Any]) -> dict[str, Any]:
    """Return the columns of a candidate with rewards and targets by name."""
    repeats = frozen(row.repeats or [])
    names = row._asdict()
    return names | {
        "trial": names.get("trial") or 0,
        "evaluations": names.get("evaluations") or 1,
        "first": scoring.by_name(names["first"]) if names.get("first") else None,
        "error": scoring.by_name(names["error"]) if names.get("error") else None,
        "rewards": None if row.rewards is None else scoring.by_name(row.rewards),
        "unmeasured": tuple(filter(None, (names.get("unmeasured") or "").split(", "))),
        "targets": scoring.named(row.targets & ~row.refuted),
        "refuted": scoring.refutations(row.refuted, row.rewards, repeats),
        "repeats": tuple(each if isinstance(each, str) else scoring.by_name(each) for each in repeats),
    }
