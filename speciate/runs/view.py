"""A run's population as its strategy sees it."""

from __future__ import annotations

from uuid import UUID

from speciate.domain.problem import Problem
from speciate.ports.work import Lease, RunContext, WorkStore
from speciate.search.strategy import EliteTable


class StoredPopulation:
    """``PopulationView`` over a store; each island is read once, so that one batch sees one state."""

    def __init__(self, store: WorkStore, context: RunContext, lease: Lease) -> None:
        self._store = store
        self._context = context
        self._batch = lease.ordinal
        self._tables: dict[int, EliteTable] = {}

    @property
    def problem(self) -> Problem:
        """The problem that is searched."""
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
        """Number of the seed program's candidate: the first one, where the problem has a seed program."""
        return SEED_NUMBER if self._context.problem.seed_program else None

    def elites(self, island: int) -> EliteTable:
        """Return the archive of an island."""
        if island not in self._tables:
            self._tables[island] = self._store.elites(self._run_id, island)
        return self._tables[island]

    @property
    def _run_id(self) -> UUID:
        return self._context.run_id


SEED_NUMBER = 1
"""Number of the seed program's candidate."""
