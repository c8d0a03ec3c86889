"""Give a strategy read access to the population of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from speciate.domain.candidate import Individual
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.ports.work import RunContext, WorkStore
from speciate.runs.progress import ALARM_WINDOW
from speciate.search.strategy import EliteTable, Family


class StoredPopulation:
    """``PopulationView`` over a store. Each island is read once, so that a batch sees one state."""

    def __init__(
        self, store: WorkStore, context: RunContext, batch: int, tables: Mapping[int, EliteTable] | None = None
    ) -> None:
        """Read the population of a run as batch ``batch`` sees it, with the archives of ``tables`` if given."""
        self._store = store
        self._context = context
        self._batch = batch
        self._tables = dict(tables or {})
        self._family: Family | None = None
        self._latest: Sequence[Individual] | None = None
        self._taken: list[int] = []

    @property
    def problem(self) -> Problem:
        return self._context.problem

    @property
    def seed(self) -> int:
        return self._context.spec.seed

    @property
    def batch(self) -> int:
        return self._batch

    @property
    def seed_number(self) -> int | None:
        """Candidate number of the first seed program; None if there is none."""
        return SEED_NUMBER if self._context.seed_programs else None

    @property
    def seed_rewards(self) -> Sequence[float] | None:
        members = self._store.members(self._run_id, [SEED_NUMBER])
        return members[SEED_NUMBER].rewards if self._context.seed_programs and members else None

    @property
    def operators(self) -> Mapping[PolicyRole, float]:
        return self._context.operators

    def latest(self) -> Sequence[Individual]:
        if self._latest is None:
            self._latest = self._store.latest(self._run_id, ALARM_WINDOW)
        return self._latest

    def elites(self, island: int) -> EliteTable:
        if island not in self._tables:
            self._tables[island] = self._store.elites(self._run_id, island)
        return self._tables[island]

    @property
    def taken(self) -> Sequence[int]:
        return self._taken

    def take(self, parents: Sequence[int]) -> None:
        self._taken += parents

    def family(self) -> Family:
        if self._family is None:
            rows = self._store.lineage_rows(self._run_id)
            dimensions = len(self.problem.objectives)
            self._family = Family.of(rows, dimensions, self._context.spec.samples_per_prompt)
        return self._family

    @property
    def _run_id(self) -> UUID:
        return self._context.run_id


SEED_NUMBER = 1
"""Candidate number of the first seed program."""
