"""Reading and filling an island's archive. It has as many cells as its names, whatever the number of candidates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speciate.domain.problem import Problem
from speciate.domain.reward import FloatArray, RewardSpace
from speciate.search.cells import weigh, weightings
from speciate.search.strategy import EliteTable, Evaluated, IntArray, Placement

Bid = tuple[str, int, float]
"""``(cell, row of the candidate, fitness in that cell)``."""


@dataclass(frozen=True, slots=True)
class ParentPool:
    """The candidates that parents are chosen from.

    Attributes:
        numbers: Run-wide numbers, shape (n,), each one once, ascending.
        points: Normalised rewards, shape (n, k), higher is better.
    """

    numbers: IntArray
    points: FloatArray

    def __len__(self) -> int:
        return len(self.numbers)


def rows_of(table: EliteTable, rows: IntArray | NDArray[np.bool_]) -> EliteTable:
    """Return some rows of an archive, by index or by a mask of shape (n,)."""
    return EliteTable(
        numbers=table.numbers[rows],
        cells=tuple(np.array(table.cells, dtype=object)[rows].tolist()),
        fitness=table.fitness[rows],
        rewards=table.rewards[rows],
    )


def concatenated(tables: Sequence[EliteTable]) -> EliteTable:
    """Return the rows of several archives, one after the other; a cell may come more than once."""
    return EliteTable(
        numbers=np.concatenate([table.numbers for table in tables]),
        cells=tuple(cell for table in tables for cell in table.cells),
        fitness=np.concatenate([table.fitness for table in tables]),
        rewards=np.concatenate([table.rewards for table in tables]),
    )


def pool_of(space: RewardSpace, table: EliteTable) -> ParentPool:
    """Return the distinct elites of an archive.

    Only those that obey every constraint are in it, where there are any: a violation shifts a vector so far that the
    spread of the others (the ε of ε-lexicase) would vanish beside it.
    """
    numbers, first = np.unique(table.numbers, return_index=True)
    rewards = table.rewards[first]
    obeys = space.violation(rewards) <= 0.0
    if obeys.any() and not obeys.all():
        numbers, rewards = numbers[obeys], rewards[obeys]
    return ParentPool(numbers, space.normalise(rewards))


def trade_off_bids(problem: Problem, points: FloatArray) -> list[Bid]:
    """Return the best candidate of a batch for every trade-off cell; the first one among equals.

    Args:
        problem: Gives the cells: the lattice over its objectives and its declared weights.
        points: Normalised rewards, shape (n, k), n ≥ 1.
    """
    names, weights = weightings(points.shape[1], problem.weight_vector)
    scores = weigh(points, weights)
    rows = scores.argmax(axis=0)
    best = scores[rows, np.arange(len(names))]
    return list(zip(names, rows.tolist(), best.tolist(), strict=True))


def improvements(
    table: EliteTable, island: int, bids: Iterable[Bid], candidates: Sequence[Evaluated]
) -> list[Placement]:
    """Return the bids that the store would grant: the best for each cell, where it beats what the cell holds.

    Args:
        table: The archive of the island as it stands.
        island: The island.
        bids: Bids of the candidates, by row.
        candidates: The bidders.
    """
    held = dict(zip(table.cells, table.fitness.tolist(), strict=True))
    winners: dict[str, int] = {}
    for cell, row, fitness in bids:
        # An infinite fitness (rewards astronomically far out of range) could never be beaten again.
        if held.get(cell, -math.inf) < fitness < math.inf:
            held[cell] = fitness
            winners[cell] = row
    return [
        Placement(candidates[row].number, island, cell, held[cell], candidates[row].rewards)
        for cell, row in winners.items()
    ]


def draw_different(pool: ParentPool, shown: Sequence[int], count: int, rng: np.random.Generator) -> list[int]:
    """Draw elites that are unlike those already shown, in rewards.

    Each is drawn with a probability in proportion to its L1 distance from the nearest one shown, in the manner of
    k-means++ (Arthur and Vassilvitskii 2007); the mean of this distance is the reward diversity that VPO reports.

    Args:
        pool: Candidates to draw from.
        shown: Rows that are shown already; at least one.
        count: How many to draw at most.
        rng: Draws one number for each.

    Returns:
        Rows, none of them twice, and none whose rewards equal those of one that is shown.
    """
    drawn: list[int] = []
    if count == 0:
        return drawn
    nearest = np.abs(pool.points[:, None, :] - pool.points[None, list(shown), :]).sum(axis=2).min(axis=1)
    while len(drawn) < count and nearest.any():
        edges = nearest.cumsum()
        row = int(edges.searchsorted(rng.random() * edges[-1], side="right"))
        drawn.append(row)
        nearest = np.minimum(nearest, np.abs(pool.points - pool.points[row]).sum(axis=1))
    return drawn
