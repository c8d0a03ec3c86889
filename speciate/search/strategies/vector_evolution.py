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

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from speciate.domain.candidate import Individual
from speciate.domain.policy import PolicyRole
from speciate.domain.reward import FloatArray
from speciate.search.archive import Bid, draw_diverse, improvements, pool_of, trade_off_bids
from speciate.search.cells import SLOT
from speciate.search.selection import best_weighted, epsilon_lexicase
from speciate.search.strategy import (
    EliteTable,
    EvolutionConfig,
    Placement,
    PopulationView,
    Selection,
    Strategy,
    first_selection,
)

_ISLAND: Final = 0


class VectorEvolutionConfig(EvolutionConfig):
    """Options of ``vector_evolution``; it holds at most ``25 + population`` elites."""

    population: int = Field(default=32, ge=0, le=256)
    """Members selected by dominated novelty, besides the records."""
    scratch: float = Field(default=0.05, ge=0, le=1)
    """Probability of a program from scratch; higher below `min_elites`."""
    min_elites: int = Field(default=8, ge=1, le=256)
    """Distinct elites below which more start from scratch."""
    focus: float = Field(default=0.8, ge=0, le=1)
    """Probability of a parent for a poorly served weighting."""
    weightings: int = Field(default=4, ge=1, le=64)
    """Weightings drawn, of which the most poorly served is used."""
    exploration: float = Field(default=0.1, ge=0, le=1)
    """Probability of a uniformly drawn parent."""
    crossover: float = Field(default=0.3, ge=0, le=1)
    """Probability of a second parent that complements the first."""
    inspirations: int = Field(default=2, ge=0, le=16)
    """Further programs to show, drawn by their distance in rewards."""


class VectorEvolution(Strategy):
    """One population that covers the trade-offs; parents by ε-lexicase and for poorly served weightings."""

    name: ClassVar[str] = "vector_evolution"
    Config: ClassVar[type[EvolutionConfig]] = VectorEvolutionConfig
    config: VectorEvolutionConfig

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        """Select a parent, perhaps its complement, and inspirations; an empty archive starts from the seed program."""
        table = view.elites(_ISLAND)
        if not len(table):
            return first_selection(view, _ISLAND)
        pool = pool_of(view.problem.space, table)
        if rng.random() < max(self.config.scratch, 1.0 - len(pool) / self.config.min_elites):
            return Selection(PolicyRole.PROPOSE, _ISLAND)
        weights = self._weighting(pool.points, rng)
        rows = [self._parent(pool.points, weights, rng)]
        if len(pool) > 1 and rng.random() < self.config.crossover:
            rows.append(complement(pool.points, rows[0], weights, rng))
        others = draw_diverse(pool, rows, self.config.inspirations, rng)
        return Selection(
            PolicyRole.MUTATE, _ISLAND, tuple(pool.numbers[rows].tolist()), tuple(pool.numbers[others].tolist())
        )

    def place(self, view: PopulationView, candidates: Sequence[Individual]) -> tuple[Placement, ...]:
        """Return the records, and the slots of members replaced by newcomers."""
        if not candidates:
            return ()
        table = view.elites(_ISLAND)
        points = view.problem.space.normalise([candidate.vector for candidate in candidates])
        bids = trade_off_bids(view.problem, points) + self._slot_bids(view, table, candidates, points)
        return tuple(improvements(table, _ISLAND, bids, candidates))

    def _weighting(self, points: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw weightings and return the most poorly served one, shape (k,)."""
        drawn = rng.dirichlet(np.ones(points.shape[1]), size=self.config.weightings)
        # The top of every range is 1 under every weighting, so the most poorly served one has the lowest best score.
        return np.asarray(drawn[(points @ drawn.T).max(axis=0).argmin()])

    def _parent(self, points: FloatArray, weights: FloatArray, rng: np.random.Generator) -> int:
        chance = rng.random()
        if chance < self.config.exploration:
            return int(rng.integers(len(points)))
        if rng.random() < self.config.focus:
            return best_weighted(points, rng, weights)
        return epsilon_lexicase(points, rng, weights)

    def _slot_bids(
        self, view: PopulationView, table: EliteTable, candidates: Sequence[Individual], points: FloatArray
    ) -> list[Bid]:
        """Give the slots of members that do not survive to newcomers that do; none if an elite has the same rewards.

        Once there is a feasible vector, infeasible ones do not survive: far below all others, they would stay novel
        for ever although no parent is selected from them.

        A slot ranks by the number of its holder, so that newcomers take it and late ones, which were compared with an
        outdated population, do not.
        """
        space = view.problem.space
        rewards = np.array([candidate.vector for candidate in candidates])
        feasible = space.violation(np.concatenate([table.rewards, rewards])) <= 0.0
        eligible = feasible | ~feasible.any()
        holders = [row for row, cell in enumerate(table.cells) if cell.startswith(SLOT) and eligible[row]]
        equal = (rewards[:, None, :] == table.rewards[None, :, :]).all(axis=2).any(axis=1)
        newcomers = np.flatnonzero(~equal & eligible[len(table) :])
        members = np.concatenate([space.normalise(table.rewards[holders]), points[newcomers]])
        alive = survivors(members, self.config.population)
        entering = newcomers[alive[len(holders) :]].tolist()
        free = self._free_slots([table.cells[row] for row in holders], alive)
        return [(cell, row, float(candidates[row].number)) for cell, row in zip(free, entering, strict=False)]

    def _free_slots(self, occupied: Sequence[str], alive: NDArray[np.bool_]) -> list[str]:
        """Return the slots without a member, then those whose member does not survive."""
        empty = [name for name in (f"{SLOT}{i}" for i in range(self.config.population)) if name not in occupied]
        return empty + [name for name, survives in zip(occupied, alive, strict=False) if not survives]


def survivors(points: FloatArray, size: int) -> NDArray[np.bool_]:
    """Return the members that survive by dominated novelty; of equal vectors only the first.

    While there are too many, the dominated member nearest to a vector that dominates it is removed; without dominated
    members, the member nearest to another.

    ``points`` are normalised rewards, shape (n, k), higher is better, newcomers last. Returns a mask of shape (n,).
    """
    n = len(points)
    alive = np.ones(n, dtype=np.bool_)
    if n == 0:
        return alive
    distances = np.abs(points[:, None, :] - points[None, :, :]).mean(axis=2)
    as_good = (points[None, :, :] >= points[:, None, :]).all(axis=2)
    np.fill_diagonal(distances, np.inf)
    alive &= ~((distances == 0.0) & np.tri(n, k=-1, dtype=np.bool_)).any(axis=1)
    excess = int(alive.sum()) - size
    for gaps in (np.where(as_good, distances, np.inf), distances):  # members that none dominates go last
        gaps[:, ~alive] = np.inf
        nearest = gaps.min(axis=1)
        while excess > 0:
            living = np.flatnonzero(alive)
            # Among equals the last one is removed: a newcomer, if there is one.
            removed = living[::-1][nearest[living[::-1]].argmin()]
            if np.isinf(nearest[removed]) and gaps is not distances:
                break
            alive[removed] = False
            excess -= 1
            orphans = alive & (gaps[:, removed] == nearest)
            gaps[:, removed] = np.inf
            nearest[orphans] = gaps[orphans].min(axis=1)
    return alive


def complement(points: FloatArray, row: int, weights: FloatArray, rng: np.random.Generator) -> int:
    """Return the elite that best complements a parent: the best wᵀ max(r, r_parent) other than ``row``."""
    together = np.maximum(points, points[row]) @ weights
    together[row] = -np.inf
    (best,) = (together == together.max()).nonzero()
    return int(best[rng.integers(len(best))])
