"""Survival and partners for a population that covers the reward space.

After Dominated Novelty Search (Bahlous-Boldi, Faldor et al. 2025, arXiv 2502.00593), with Pareto dominance instead of
fitness and rewards as descriptors.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from speciate.domain.arrays import FloatArray
from speciate.domain.candidate import Individual
from speciate.domain.reward import RewardSpace, rounded
from speciate.search.archive import Bid, improvements, trade_off_bids
from speciate.search.cells import SLOT
from speciate.search.strategy import EliteTable, EvolutionConfig, Placement, PopulationView, Strategy

ISLAND: Final = 0


class DominatedNoveltyConfig(EvolutionConfig):
    """Options of a population that is selected by dominated novelty; it holds at most ``25 + population`` elites."""

    population: int = Field(default=32, ge=0, le=256)
    """Members selected by dominated novelty, besides the records."""
    exploration: float = Field(default=0.1, ge=0, le=1)
    """Probability of a uniformly drawn parent."""
    crossover: float = Field(default=0.3, ge=0, le=1)
    """Probability of a second parent that complements the first."""
    inspirations: int = Field(default=2, ge=0, le=16)
    """Further programs to show: the best, or of several objectives the front by distance in rewards."""


class DominatedNovelty(Strategy):
    """Base of strategies with one population: the records of the trade-offs, and what dominated novelty keeps."""

    config: DominatedNoveltyConfig

    def place(self, view: PopulationView, candidates: Sequence[Individual]) -> tuple[Placement, ...]:
        table = view.elites(ISLAND)
        points = view.problem.space.normalise([candidate.vector for candidate in candidates])
        bids = trade_off_bids(view.problem, points)
        bids += slot_bids(view.problem.space, table, candidates, self.config.population)
        return tuple(improvements(table, ISLAND, bids, candidates))


def slot_bids(space: RewardSpace, table: EliteTable, candidates: Sequence[Individual], size: int) -> list[Bid]:
    """Give the slots of members that do not survive to newcomers that do; none if an elite has the same rewards.

    Once there is a feasible vector, infeasible ones do not survive: far below all others, they would stay novel
    for ever although no parent is selected from them.

    A slot ranks by the number of its holder, so that newcomers take it and late ones, which were compared with an
    outdated population, do not.

    ``size`` is the number of slots.
    """
    rewards = np.array([candidate.vector for candidate in candidates])
    feasible = space.violation(np.concatenate([table.rewards, rewards])) <= 0.0
    eligible = feasible | ~feasible.any()
    holders = [row for row, cell in enumerate(table.cells) if cell.startswith(SLOT) and eligible[row]]
    equal = (rounded(rewards)[:, None, :] == rounded(table.rewards)[None, :, :]).all(axis=2).any(axis=1)
    newcomers = np.flatnonzero(~equal & eligible[len(table) :])
    members = np.concatenate([table.rewards[holders], rewards[newcomers]])
    alive = survivors(space.widened(members).normalise(members), size)
    entering = newcomers[alive[len(holders) :]].tolist()
    occupied = [table.cells[row] for row in holders]
    empty = [name for name in (f"{SLOT}{i}" for i in range(size)) if name not in occupied]
    # Slots without a member, then those whose member does not survive.
    free = empty + [name for name, survives in zip(occupied, alive, strict=False) if not survives]
    return [(cell, row, float(candidates[row].number)) for cell, row in zip(free, entering, strict=False)]


def poorly_served(points: FloatArray, rng: np.random.Generator, drawn: int = 4) -> FloatArray:
    """Draw some weightings w ~ Dir(1) and return the one with the lowest best wᵀr, shape (k,).

    ``points`` are normalised rewards, shape (n, k). The top of every range is 1 under every weighting, so that the
    lowest best value is the farthest from it.
    """
    weights = rng.dirichlet(np.ones(points.shape[1]), size=drawn)
    return np.asarray(weights[(points @ weights.T).max(axis=0).argmin()])


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
    """Return the elite that best complements a parent: the best wᵀ max(r, r_parent) other than ``row``.

    All that add nothing to the parent tie, as with one objective: then any of the better half by wᵀr.
    """
    together = np.maximum(points, points[row]) @ weights
    together[row] = -np.inf
    (best,) = (together == together.max()).nonzero()
    alone = points[best] @ weights
    best = best[alone >= np.median(alone)]
    return int(best[rng.integers(len(best))])
