"""Give a strategy read access to the population of a run."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Final

from speciate.domain.candidate import Individual
from speciate.domain.policy import PolicyRole
from speciate.domain.target import TargetSet
from speciate.ports.work import RunContext, Standing, WorkStore
from speciate.runs.progress import ALARM_WINDOW
from speciate.search.strategy import EliteTable, Family

_WRITTEN: Final = frozenset({PolicyRole.PROPOSE, PolicyRole.MUTATE})
_WRITTEN_PER_POLISHED: Final = 3


class StoredPopulation:
    """``PopulationView`` over a store. Each island is read once, so that a batch sees one state."""

    def __init__(
        self, store: WorkStore, context: RunContext, batch: int, tables: Mapping[int, EliteTable] | None = None
    ) -> None:
        """Read the population of a run as batch ``batch`` sees it, with the archives of ``tables`` if given."""
        self.problem = context.problem
        self.seed = context.spec.seed
        self.batch = batch
        self.taken: list[int] = []
        self.polishing = 0  # candidates that this batch polishes, so far
        self._store = store
        self._context = context
        self._tables = dict(tables or {})
        self._family: Family | None = None
        self._latest: Sequence[Individual] | None = None

    @cached_property
    def standing(self) -> Standing:
        return self._store.standing(self._context.run_id)

    @property
    def unconfirmed(self) -> TargetSet:
        return sum(1 << i for i, each in enumerate(self.problem.targets) if each.name not in self.standing.confirmed)

    @property
    def seed_number(self) -> int | None:
        return (self.standing.seed or 1) if self._context.seed_programs else None

    @property
    def seed_rewards(self) -> Sequence[float] | None:
        number = self.standing.seed
        return None if number is None else self._store.members(self._context.run_id, [number])[number].rewards

    @property
    def operators(self) -> Mapping[PolicyRole, float]:
        """Operators with their shares. Beside a model only one candidate is polished for three that have rewards."""
        shares = dict(self._context.operators)
        if self._context.asks_model and PolicyRole.POLISH in shares:
            polished = sum(each.role is PolicyRole.POLISH for each in self.latest()) + self.polishing
            written = sum(each.role in _WRITTEN and each.rewards is not None for each in self.latest())
            if _WRITTEN_PER_POLISHED * polished >= written:
                shares[PolicyRole.MUTATE] += shares.pop(PolicyRole.POLISH)
        return shares

    def latest(self) -> Sequence[Individual]:
        if self._latest is None:
            self._latest = self._store.latest(self._context.run_id, ALARM_WINDOW)
        return self._latest

    def elites(self, island: int) -> EliteTable:
        if island not in self._tables:
            self._tables[island] = self._store.elites(self._context.run_id, island)
        return self._tables[island]

    def family(self) -> Family:
        if self._family is None:
            rows = self._store.lineage_rows(self._context.run_id)
            self._family = Family.of(rows, len(self.problem.objectives), self._context.spec.samples_per_prompt)
        return self._family
