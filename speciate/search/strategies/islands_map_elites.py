"""Islands of MAP-Elites archives, the shape of FunSearch (Romera-Paredes et al. 2024) and AlphaEvolve (2025).

Differences from both: rewards stay vectors. Each island keeps a specialist for every trade-off beside its feature
cells, parents are chosen by ε-lexicase, and migrants are those that the receiving island values most.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from speciate.domain.policy import PolicyRole
from speciate.domain.reward import FloatArray
from speciate.search.archive import held_fitness, improvements
from speciate.search.cells import trade_off_cell, trade_offs, weights_of
from speciate.search.selection import SELECTIONS
from speciate.search.strategy import Evaluated, IntArray, Placement, PopulationView, Selection, StrategyConfig


class IslandsMapElitesConfig(StrategyConfig):
    """Options of ``islands_map_elites``."""

    islands: int = Field(default=4, ge=1, le=64, description="populations that evolve side by side")
    selection: Literal["epsilon_lexicase", "lexicase", "random_scalarization", "pareto_tournament"] = Field(
        default="epsilon_lexicase", description="how parents are chosen"
    )
    crossover: float = Field(default=0.3, ge=0, le=1, description="probability of a second parent")
    inspirations: int = Field(default=2, ge=0, le=16, description="further programs shown in a prompt")
    features: tuple[Literal["length", "lines", "depth"], ...] = Field(
        default=("length",), max_length=3, description="features of the program that span the feature cells"
    )
    migration_interval: int = Field(default=20, ge=1, le=100_000, description="batches between two migrations")
    migrants: int = Field(default=2, ge=0, le=64, description="elites that move to the next island of the ring")


class IslandsMapElites:
    """Evolves islands side by side, each with a bounded archive, and lets elites migrate round a ring."""

    name: ClassVar[str] = "islands_map_elites"
    Config: ClassVar[type[StrategyConfig]] = IslandsMapElitesConfig

    def __init__(self, config: IslandsMapElitesConfig) -> None:
        self.config = config

    @property
    def islands(self) -> int:
        """Number of islands."""
        return self.config.islands

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        """Choose an island, a parent on it, perhaps a second one, and programs that do something else well."""
        island = int(rng.integers(self.config.islands))
        numbers, points = distinct_elites(view, island)
        if len(numbers) == 0:
            if view.seed_number is None:
                return Selection(PolicyRole.PROPOSE, island)
            return Selection(PolicyRole.MUTATE, island, (view.seed_number,))
        choose = SELECTIONS[self.config.selection]
        chosen = [choose(points, rng)]
        rest = np.delete(np.arange(len(numbers)), chosen)
        if len(rest) and rng.random() < self.config.crossover:
            chosen.append(int(rest[choose(points[rest], rng)]))
        shown = most_different(points, chosen, self.config.inspirations)
        return Selection(PolicyRole.MUTATE, island, tuple(numbers[chosen].tolist()), tuple(numbers[shown].tolist()))

    def place(self, view: PopulationView, candidates: Sequence[Evaluated]) -> tuple[Placement, ...]:
        """Return the trade-off and feature cells that the candidates improve."""
        return improvements(view, candidates, self.config.features)

    def maintain(self, view: PopulationView, rng: np.random.Generator) -> tuple[Placement, ...]:  # noqa: ARG002
        """Every ``migration_interval`` batches, send each island's elites to the next."""
        due = view.batch > 0 and view.batch % self.config.migration_interval == 0
        if not due or self.config.islands == 1:
            return ()
        return tuple(
            placement
            for island in range(self.config.islands)
            for placement in self._migrate(view, island, (island + 1) % self.config.islands)
        )

    def _migrate(self, view: PopulationView, source: int, goal: int) -> list[Placement]:
        table = view.elites(source)
        numbers, points = distinct_elites(view, source)
        if len(numbers) == 0:
            return []
        held = held_fitness(view.elites(goal))
        # The receiving island decides who comes: what it values, not what the sending one does.
        valued = points @ weights_of(view.problem, view.seed, goal)
        placements = []
        for i in np.argsort(-valued, kind="stable")[: self.config.migrants]:
            rewards = tuple(table.rewards[table.numbers == numbers[i]][0].tolist())
            for cell, fitness in enumerate((trade_offs(points.shape[1]) @ points[i]).tolist()):
                name = trade_off_cell(cell)
                if fitness > held.get(name, -np.inf):
                    placements.append(Placement(int(numbers[i]), goal, name, fitness, rewards))
        return placements


def distinct_elites(view: PopulationView, island: int) -> tuple[IntArray, FloatArray]:
    """Return each elite of an island once: numbers, shape (n,), and normalised rewards, shape (n, k)."""
    table = view.elites(island)
    numbers, first = np.unique(table.numbers, return_index=True)
    return numbers, view.problem.space.normalise(table.rewards[first])


def most_different(points: FloatArray, chosen: Sequence[int], count: int) -> list[int]:
    """Return up to ``count`` rows, each the farthest from those chosen and returned so far (L1, as diversity is).

    Args:
        points: Normalised rewards, shape (n, k).
        chosen: Rows that are shown already; at least one.
        count: Rows wanted.
    """
    nearest = np.abs(points[:, None, :] - points[list(chosen)][None, :, :]).sum(axis=2).min(axis=1)
    shown: list[int] = []
    while len(shown) < count and nearest.max() > 0:
        farthest = int(np.argmax(nearest))
        shown.append(farthest)
        nearest = np.minimum(nearest, np.abs(points - points[farthest]).sum(axis=1))
    return shown
