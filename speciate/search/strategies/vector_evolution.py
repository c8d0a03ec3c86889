"""Vector evolution, designed for Speciate: one population that covers the reward space.

Three parts, all on reward vectors:

- *Survival*: the best under every weighting of a lattice, and a population selected by distance to dominating members,
  or to the nearest member among nondominated ones (after Dominated Novelty Search: Bahlous-Boldi, Faldor et al. 2025,
  arXiv 2502.00593, with Pareto dominance instead of fitness and rewards as descriptors).
- *Parents*: selected by ε-lexicase (La Cava et al. 2019), or the best under a poorly served weighting: of some
  w ~ Dir(1) the one with the largest distance between the best wᵀr and the top of the declared ranges (the effort of
  MOEA/D-DRA, Zhang et al. 2009, applied to VPO's random scalarizations, arXiv 2605.22817).
- *Partners*: the elite that adds most to the first parent where that is weak.
"""

from typing import ClassVar

import numpy as np
from pydantic import Field

from speciate.domain.arrays import FloatArray
from speciate.domain.policy import PolicyRole
from speciate.search.archive import draw_diverse, pool_of
from speciate.search.dominated_novelty import (
    ISLAND,
    DominatedNovelty,
    DominatedNoveltyConfig,
    complement,
    poorly_served,
)
from speciate.search.selection import best_weighted, epsilon_lexicase
from speciate.search.strategy import EvolutionConfig, PopulationView, Selection, first_selection


class VectorEvolutionConfig(DominatedNoveltyConfig):
    """Options of ``vector_evolution``; it holds at most ``25 + population`` elites."""

    scratch: float = Field(default=0.05, ge=0, le=1)
    """Probability of a program from scratch; higher below `min_elites`."""
    min_elites: int = Field(default=8, ge=1, le=256)
    """Distinct elites below which more start from scratch."""
    focus: float = Field(default=0.8, ge=0, le=1)
    """Probability of a parent for a poorly served weighting."""
    weightings: int = Field(default=4, ge=1, le=64)
    """Weightings drawn, of which the most poorly served is used."""


class VectorEvolution(DominatedNovelty):
    """One population that covers the trade-offs; parents by ε-lexicase and for poorly served weightings."""

    Config: ClassVar[type[EvolutionConfig]] = VectorEvolutionConfig
    config: VectorEvolutionConfig

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        """Select a parent, perhaps its complement, and inspirations; an empty archive starts from the seed program."""
        table = view.elites(ISLAND)
        if not len(table):
            return first_selection(view, ISLAND)
        pool = pool_of(view.problem.space, table)
        if rng.random() < max(self.config.scratch, 1.0 - len(pool) / self.config.min_elites):
            return Selection(PolicyRole.PROPOSE, ISLAND)
        weights = poorly_served(pool.points, rng, self.config.weightings)
        rows = [self._parent(pool.points, weights, rng)]
        if len(pool) > 1 and rng.random() < self.config.crossover:
            rows.append(complement(pool.points, rows[0], weights, rng))
        others = draw_diverse(pool, rows, self.config.inspirations, rng)
        numbers = pool.numbers
        return Selection(PolicyRole.MUTATE, ISLAND, tuple(numbers[rows].tolist()), tuple(numbers[others].tolist()))

    def _parent(self, points: FloatArray, weights: FloatArray, rng: np.random.Generator) -> int:
        if rng.random() < self.config.exploration:
            return int(rng.integers(len(points)))
        if rng.random() < self.config.focus:
            return best_weighted(points, rng, weights)
        return epsilon_lexicase(points, rng, weights)
