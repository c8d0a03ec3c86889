"""Adaptive evolution, the default: change the best, polish its numbers, and keep trade-offs, as far as each pays.

Three parts, all on reward vectors:

- *Operators*: change a program, recombine it with another, polish its numbers, or write one from scratch, by what each
  has gained in this run (``operators``). Prompts show further programs beside those.
- *Parents*: the best by the declared weights (even ones without), or under a poorly served weighting of several
  objectives as in ``vector_evolution``; at times any elite, since the best may be a dead end.
- *Survival*: the records of the trade-offs and a population selected by dominated novelty (``dominated_novelty``).

The rule "change the best, at times another elite" is hard to beat with small budgets (arXiv 2602.16805, "Simple
Baselines are Competitive with Code Evolution"), so the strategy begins as this rule and departs from it on evidence.
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
from speciate.search.operators import Operator, draw_operator
from speciate.search.selection import best_weighted
from speciate.search.strategy import EvolutionConfig, PopulationView, Selection, first_selection


class AdaptiveEvolutionConfig(DominatedNoveltyConfig):
    """Options of ``adaptive_evolution``; it holds at most ``25 + population`` elites."""

    polish: bool = True
    """Also improve the numbers of the best program, without a model."""
    exploration: float = Field(default=0.15, ge=0, le=1)
    """Probability of any elite as parent instead of the best."""
    coverage: float = Field(default=0.5, ge=0, le=1)
    """Probability of a parent for a poorly served weighting, with several objectives."""


class AdaptiveEvolution(DominatedNovelty):
    """Changes the best program, polishes its numbers and covers trade-offs, by what each gains in the run."""

    Config: ClassVar[type[EvolutionConfig]] = AdaptiveEvolutionConfig
    config: AdaptiveEvolutionConfig

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        """Draw an operator, then its parents; an empty archive starts from the seed program."""
        table = view.elites(ISLAND)
        if not len(table):
            return first_selection(view, ISLAND)
        pool = pool_of(view.problem.space, table)
        operator = draw_operator(view, table, self._shares(view, len(pool)), rng)
        if operator is Operator.PROPOSE:
            return Selection(PolicyRole.PROPOSE, ISLAND)
        k = pool.points.shape[1]
        weights = np.array(view.problem.weight_vector or np.full(k, 1 / k))
        if operator is Operator.POLISH:
            return Selection(PolicyRole.POLISH, ISLAND, (int(pool.numbers[best_weighted(pool.points, rng, weights)]),))
        if k > 1 and rng.random() < self.config.coverage:
            weights = poorly_served(pool.points, rng)
        rows = [self._parent(pool.points, weights, rng)]
        if operator is Operator.RECOMBINE:
            rows.append(complement(pool.points, rows[0], weights, rng))
        others = draw_diverse(pool, rows, self.config.inspirations, rng)
        numbers = pool.numbers
        return Selection(PolicyRole.MUTATE, ISLAND, tuple(numbers[rows].tolist()), tuple(numbers[others].tolist()))

    def _shares(self, view: PopulationView, elites: int) -> dict[Operator, float]:
        shares = {Operator(role.value): share for role, share in view.operators.items()}
        if not self.config.polish:
            shares.pop(Operator.POLISH, None)
        if elites > 1:
            shares[Operator.RECOMBINE] = self.config.crossover * shares[Operator.MUTATE]
            shares[Operator.MUTATE] -= shares[Operator.RECOMBINE]
        return shares

    def in_flight(self, most: int, evaluated: int) -> int:
        """Grow with the run: a sixteenth of what has been evaluated.

        A child that is asked for before its siblings are scored cannot build on them, which costs most at the start.
        """
        return min(most, max(1, evaluated // 16))

    def _parent(self, points: FloatArray, weights: FloatArray, rng: np.random.Generator) -> int:
        if rng.random() < self.config.exploration:
            return int(rng.integers(len(points)))
        return best_weighted(points, rng, weights)
