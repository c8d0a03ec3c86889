"""Vector evolution: our own. A population that covers the space of rewards, and effort where it serves worst.

Three parts, each on vectors alone. *Survival*: the best under every weighting of a lattice, and beside them a
population in which a member lives by its distance from whoever dominates it, and among those whom nobody dominates by
its distance from the others (after Dominated Novelty Search: Bahlous-Boldi, Faldor et al. 2025, arXiv 2502.00593, with
Pareto dominance in the place of fitness and rewards as descriptors). *Parents*: by ε-lexicase (La Cava et al. 2019),
or the best under a weighting that the population serves badly: of some w ~ Dir(1) the one with the largest distance
between the best wᵀr and the top of the declared ranges (the effort of MOEA/D-DRA, Zhang et al. 2009, given to VPO's
random scalarizations, arXiv 2605.22817). *Partners*: who adds most to the first parent where that is weak.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from speciate.domain.policy import PolicyRole
from speciate.domain.reward import FloatArray
from speciate.search.archive import Bid, draw_different, improvements, pool_of, trade_off_bids
from speciate.search.cells import SLOT
from speciate.search.selection import best_weighted, epsilon_lexicase
from speciate.search.strategy import EliteTable, Evaluated, Placement, PopulationView, Selection, StrategyConfig

_ISLAND: Final = 0


class VectorEvolutionConfig(StrategyConfig):
    """Options of ``vector_evolution``; it holds at most ``25 + population`` elites."""

    population: int = Field(
        default=32, ge=0, le=256, description="Members that live by dominated novelty, beside the records."
    )
    scratch: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Probability of a program from scratch; higher while elites are few.",
    )
    founders: int = Field(default=8, ge=1, le=256, description="Different elites at which there are no longer few.")
    focus: float = Field(
        default=0.8, ge=0, le=1, description="Probability of a parent for a weighting that is served badly."
    )
    weightings: int = Field(
        default=4, ge=1, le=64, description="Weightings drawn, of which the one served worst is used; 1: any."
    )
    exploration: float = Field(default=0.1, ge=0, le=1, description="Probability that a parent is any elite.")
    crossover: float = Field(
        default=0.3, ge=0, le=1, description="Probability of a second parent: the one that complements the first."
    )
    inspirations: int = Field(
        default=2, ge=0, le=16, description="Further programs to show, drawn for their difference in rewards."
    )


class VectorEvolution:
    """One population that covers the trade-offs; parents by ε-lexicase and for the weightings served worst."""

    name: ClassVar[str] = "vector_evolution"
    Config: ClassVar[type[StrategyConfig]] = VectorEvolutionConfig

    def __init__(self, config: VectorEvolutionConfig) -> None:
        self.config = config

    @property
    def islands(self) -> int:
        """One: what islands are for, difference, is what the population is kept by."""
        return 1

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        """Choose a parent, perhaps its complement, and inspirations; while there are none, begin from the seed."""
        table = view.elites(_ISLAND)
        if not len(table):
            if view.seed_number is None:
                return Selection(PolicyRole.PROPOSE, _ISLAND)
            return Selection(PolicyRole.MUTATE, _ISLAND, parents=(view.seed_number,))
        pool = pool_of(view.problem.space, table)
        if rng.random() < max(self.config.scratch, 1.0 - len(pool) / self.config.founders):
            return Selection(PolicyRole.PROPOSE, _ISLAND)
        weights = self._weighting(pool.points, rng)
        rows = [self._parent(pool.points, weights, rng)]
        if len(pool) > 1 and rng.random() < self.config.crossover:
            rows.append(complement(pool.points, rows[0], weights, rng))
        others = draw_different(pool, rows, self.config.inspirations, rng)
        return Selection(
            PolicyRole.MUTATE, _ISLAND, tuple(pool.numbers[rows].tolist()), tuple(pool.numbers[others].tolist())
        )

    def place(self, view: PopulationView, candidates: Sequence[Evaluated]) -> tuple[Placement, ...]:
        """Return the records, and the slots of members that do not survive the newcomers."""
        if not candidates:
            return ()
        table = view.elites(_ISLAND)
        points = view.problem.space.normalise([candidate.rewards for candidate in candidates])
        bids = trade_off_bids(view.problem, points) + self._slot_bids(view, table, candidates, points)
        return tuple(improvements(table, _ISLAND, bids, candidates))

    def maintain(self, view: PopulationView, rng: np.random.Generator) -> tuple[Placement, ...]:  # noqa: ARG002
        """Return nothing: all is done when candidates are placed."""
        return ()

    def _weighting(self, points: FloatArray, rng: np.random.Generator) -> FloatArray:
        """Draw weightings and return the one that the population serves worst, shape (k,)."""
        drawn = rng.dirichlet(np.ones(points.shape[1]), size=self.config.weightings)
        # The top of every range is 1 under every weighting: the worst served has the lowest best score.
        return np.asarray(drawn[(points @ drawn.T).max(axis=0).argmin()])

    def _parent(self, points: FloatArray, weights: FloatArray, rng: np.random.Generator) -> int:
        chance = rng.random()
        if chance < self.config.exploration:
            return int(rng.integers(len(points)))
        if rng.random() < self.config.focus:
            return best_weighted(points, rng, weights)
        return epsilon_lexicase(points, rng, weights)

    def _slot_bids(
        self, view: PopulationView, table: EliteTable, candidates: Sequence[Evaluated], points: FloatArray
    ) -> list[Bid]:
        """Give the slots of those who do not survive to newcomers who do; none whose rewards an elite has already.

        Once anybody obeys all constraints, who violates one does not survive: far below everybody, it would count as
        novel for ever, and no parent is taken from it.

        A slot ranks by the number of its holder, so that a newcomer takes it and a late one, which was compared with
        a population that is gone, does not.
        """
        space = view.problem.space
        rewards = np.array([candidate.rewards for candidate in candidates])
        obeys = space.violation(np.concatenate([table.rewards, rewards])) <= 0.0
        lives = obeys | ~obeys.any()
        held = [row for row, cell in enumerate(table.cells) if cell.startswith(SLOT) and lives[row]]
        known = (rewards[:, None, :] == table.rewards[None, :, :]).all(axis=2).any(axis=1)
        newcomers = np.flatnonzero(~known & lives[len(table) :])
        members = np.concatenate([space.normalise(table.rewards[held]), points[newcomers]])
        alive = survivors(members, self.config.population)
        used = {table.cells[row] for row in held}
        free = [name for name in (f"{SLOT}{i}" for i in range(self.config.population)) if name not in used]
        free += [table.cells[row] for row, stays in zip(held, alive, strict=False) if not stays]
        entering = newcomers[alive[len(held) :]].tolist()
        return [(cell, row, float(candidates[row].number)) for cell, row in zip(free, entering, strict=False)]


def survivors(points: FloatArray, size: int) -> NDArray[np.bool_]:
    """Return who lives on, by dominated novelty; of equal vectors the first alone.

    The one to go is always a dominated one if there is any, the one nearest to a vector that dominates it; else the
    one nearest to another.

    Args:
        points: Normalised rewards, shape (n, k), higher is better, newcomers last.
        size: Most survivors.

    Returns:
        Mask of shape (n,).
    """
    n = len(points)
    alive = np.ones(n, dtype=np.bool_)
    if n == 0:
        return alive
    distances = np.abs(points[:, None, :] - points[None, :, :]).mean(axis=2)
    as_good = (points[None, :, :] >= points[:, None, :]).all(axis=2)
    np.fill_diagonal(distances, np.inf)
    alive &= ~((distances == 0.0) & np.tri(n, k=-1, dtype=np.bool_)).any(axis=1)
    from_better = np.where(as_good, distances, np.inf)
    for _ in range(int(alive.sum()) - size):
        living = np.flatnonzero(alive)
        nearest = from_better[np.ix_(living, living)].min(axis=1)
        if np.isinf(nearest).all():
            nearest = distances[np.ix_(living, living)].min(axis=1)
        # Among equals the last one goes: a newcomer where there is one.
        alive[living[::-1][nearest[::-1].argmin()]] = False
    return alive


def complement(points: FloatArray, row: int, weights: FloatArray, rng: np.random.Generator) -> int:
    """Return who adds most to a parent where that is weak: the best wᵀ max(r, r_parent), another row than ``row``."""
    together = np.maximum(points, points[row]) @ weights
    together[row] = -np.inf
    (best,) = (together == together.max()).nonzero()
    return int(best[rng.integers(len(best))])
