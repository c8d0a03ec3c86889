"""Read and update an island's archive. Its size is bounded by its cell names, not by the number of candidates."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from speciate.domain.arrays import FloatArray, IntArray
from speciate.domain.candidate import Individual
from speciate.domain.problem import Problem
from speciate.domain.reward import RewardSpace, pareto_front
from speciate.search.cells import is_clocked, weigh, weightings
from speciate.search.strategy import EliteTable, Placement

_COLUMNS: Final = ("numbers", "fitness", "rewards", "errors", "evaluations")
Bid = tuple[str, int, float]
"""``(cell, row of the candidate, fitness in that cell)``."""


@dataclass(frozen=True, slots=True)
class ParentPool:
    numbers: IntArray  # distinct numbers of the candidates in the run, shape (n,), ascending
    points: FloatArray  # normalised rewards, shape (n, k), higher is better
    space: RewardSpace  # that of the points: estimated ranges reach the best of their rewards

    def __len__(self) -> int:
        return len(self.numbers)


def rows_of(table: EliteTable, rows: IntArray | NDArray[np.bool_]) -> EliteTable:
    """Return rows of an archive, by index or by a mask of shape (n,)."""
    cells = tuple(np.array(table.cells, dtype=object)[rows].tolist())
    columns: dict[str, Any] = {name: getattr(table, name)[rows] for name in _COLUMNS}
    return EliteTable(cells=cells, **columns)


def concatenated(tables: Sequence[EliteTable]) -> EliteTable:
    cells = tuple(cell for table in tables for cell in table.cells)
    columns: dict[str, Any] = {name: np.concatenate([getattr(table, name) for table in tables]) for name in _COLUMNS}
    return EliteTable(cells=cells, **columns)


def pool_of(space: RewardSpace, table: EliteTable) -> ParentPool:
    """Return the distinct elites of an archive, only the feasible ones if there are any.

    Infeasible vectors are shifted so far down that the spread of the feasible ones (the ε of ε-lexicase) would vanish.
    """
    numbers, first = np.unique(table.numbers, return_index=True)
    rewards = table.rewards[first]
    feasible = space.violation(rewards) <= 0.0
    if feasible.any() and not feasible.all():
        numbers, rewards = numbers[feasible], rewards[feasible]
    widened = space.widened(rewards)
    return ParentPool(numbers, widened.normalise(rewards), widened)


def trade_off_bids(problem: Problem, points: FloatArray) -> list[Bid]:
    """Return the best candidate of a batch for every trade-off cell; the first one among equals."""
    names, weights = weightings(points.shape[1], problem.weight_vector)
    scores = weigh(points, weights)
    rows = scores.argmax(axis=0)
    return list(zip(names, rows.tolist(), scores[rows, np.arange(len(names))].tolist(), strict=True))


def improvements(
    table: EliteTable, island: int, bids: Iterable[Bid], candidates: Sequence[Individual]
) -> list[Placement]:
    """Return the bids that the store would accept: the best per cell, if better than the holder."""
    rows = zip(table.cells, table.fitness.tolist(), strict=True)
    best = {cell: fitness for cell, fitness in rows if is_clocked(cell) or not table.revised}
    winners: dict[str, int] = {}
    for cell, row, fitness in bids:
        # An infinite fitness (rewards extremely far out of range) could never be beaten.
        if best.get(cell, -math.inf) < fitness < math.inf:
            best[cell] = fitness
            winners[cell] = row
    return [
        Placement(candidates[row].number, island, cell, best[cell], candidates[row].vector)
        for cell, row in winners.items()
    ]


def best_per_cell(updates: Iterable[Placement]) -> list[Placement]:
    """Return the best update of every cell, the earliest among equals, by island and cell."""
    best: dict[tuple[int, str], Placement] = {}
    for update in sorted(updates, key=lambda each: -each.fitness):
        best.setdefault((update.island, update.cell), update)
    return [best[key] for key in sorted(best)]


def draw_diverse(pool: ParentPool, shown: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
    """Draw elites whose rewards differ from those already shown, front by front: of one objective, the best.

    Within a front each is drawn with probability proportional to its L1 distance from the nearest shown one, as in
    k-means++ (Arthur and Vassilvitskii 2007). The mean of this distance is the reward diversity that VPO reports.

    Elites worse than the median in every objective are left out.

    At least one row is already ``shown``. Returns at most ``count`` distinct rows, none with the rewards of a shown
    one; ``rng`` draws one number for each.
    """
    drawn: list[int] = []
    if count == 0:
        return drawn
    nearest = np.abs(pool.points[:, None, :] - pool.points[None, list(shown), :]).sum(axis=2).min(axis=1)
    nearest[(pool.points < np.median(pool.points, axis=0)).all(axis=1)] = 0.0
    while len(drawn) < count and nearest.any():
        rows = np.flatnonzero(nearest)
        rows = rows[pareto_front(pool.points[rows])]
        edges = nearest[rows].cumsum()
        row = int(rows[edges.searchsorted(rng.random() * edges[-1], side="right")])
        drawn.append(row)
        nearest = np.minimum(nearest, np.abs(pool.points - pool.points[row]).sum(axis=1))
    return drawn
