"""Give a strategy read access to the population of a run."""

from __future__ import annotations

from uuid import UUID

from speciate.domain.problem import Problem
from speciate.ports.work import RunContext, WorkStore
from speciate.search.strategy import EliteTable


class StoredPopulation:
    """``PopulationView`` over a store. Each island is read once, so that a batch sees one state."""

    def __init__(self, store: WorkStore, context: RunContext, batch: int) -> None:
        self._store = store
        self._context = context
        self._batch = batch
        self._tables: dict[int, EliteTable] = {}

    @property
    def problem(self) -> Problem:
        """The problem of the run."""
        return self._context.problem

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self._context.spec.seed

    @property
    def batch(self) -> int:
        """Ordinal of the batch."""
        return self._batch

    @property
    def seed_number(self) -> int | None:
        """Candidate number of the first seed program; None if there is none."""
        return SEED_NUMBER if self._context.seed_programs else None

    def elites(self, island: int) -> EliteTable:
        """Return the archive of an island."""
        if island not in self._tables:
            self._tables[island] = self._store.elites(self._run_id, island)
        return self._tables[island]

    @property
    def _run_id(self) -> UUID:
        return self._context.run_id


SEED_NUMBER = 1
"""Candidate number of the first seed program."""
