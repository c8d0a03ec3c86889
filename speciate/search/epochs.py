"""Epochs: how the population of an island dies out and starts anew, although nothing is ever deleted.

A cell takes a candidate of higher fitness and nothing else. So the whole part of a fitness is the epoch in which it
was given, and its fraction the score: whoever enters in a later epoch outranks all of an earlier one, in the same
cells, and the archive stays as small as it was. An island's epoch is the newest that its cells know; what is older is
dead and seen by nobody. Epochs are counted by the clock of batches, so a late child, whose batch began before the
reset, is known by its batch and stays outside.

Sources: Romera-Paredes et al. 2024 (FunSearch, Nature 625, Methods: the weaker half of the islands is reset from the
best of the others); arXiv 2501.09891, section 3.2 (Mind Evolution: founders are diverse elites of all islands).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from speciate.domain.problem import Problem
from speciate.domain.reward import FloatArray
from speciate.search.archive import concatenated, rows_of, trade_off_bids
from speciate.search.cells import is_clocked, weigh, weightings
from speciate.search.islands import Rank, copies, island_of, island_weights
from speciate.search.strategy import EliteTable, IntArray, Placement, PopulationView


def ranked(score: float, epoch: int) -> float:
    """Return the fitness of a score in an epoch: between ``epoch + ¼`` and ``epoch + ¾``, rising with the score."""
    return epoch + 0.5 + 0.25 * score / (1.0 + abs(score))


def epoch_of(table: EliteTable) -> int:
    """Return the epoch of an island with this archive; 0 for an empty one."""
    fitness = table.fitness[[not is_clocked(cell) for cell in table.cells]]
    return math.floor(fitness.max()) if len(fitness) else 0


@dataclass(frozen=True, slots=True)
class Resets:
    """When islands start anew, and who founds their new populations.

    Attributes:
        islands: Number of islands.
        interval: Turns of every island between two resets; 0 for never.
        count: Islands that start anew each time; at least one is always spared.
        founders: Elites that found a new population.
    """

    islands: int
    interval: int
    count: int
    founders: int

    @property
    def happen(self) -> bool:
        """Whether there are any: a lone island is never reset."""
        return self.islands > 1 and self.interval > 0

    def epoch(self, batch: int) -> int:
        """Return the epoch that a batch belongs to, counted from 0."""
        return batch // (self.islands * self.interval) if self.happen else 0

    def living(self, table: EliteTable) -> EliteTable:
        """Return the rows of an archive that are of its newest epoch; cells that rank by the clock are left out."""
        epoch = epoch_of(table) if self.happen else -math.inf
        alive = [not is_clocked(cell) and fit >= epoch for cell, fit in zip(table.cells, table.fitness, strict=True)]
        return table if all(alive) else rows_of(table, np.array(alive, dtype=np.bool_))

    def rank(self, table: EliteTable) -> Rank:
        """Return how scores rank on an island with this archive."""
        if not self.happen:
            return float
        epoch = epoch_of(table)
        return lambda score: ranked(score, epoch)

    def too_late(self, view: PopulationView, table: EliteTable) -> bool:
        """Tell whether the batch of a view began before the island with this archive was last reset."""
        return self.epoch(view.batch) < epoch_of(table) if self.happen else False

    def due(self, view: PopulationView) -> bool:
        """Tell whether the reset of the epoch has yet to be seen.

        Asked in the first two turns of an epoch only, so that other batches need not read the archives of all islands.
        """
        epoch = self.epoch(view.batch)
        if epoch == 0 or view.batch % (self.islands * self.interval) >= 2 * self.islands:
            return False
        tables = [view.elites(island) for island in range(self.islands)]
        return any(map(len, tables)) and max(map(epoch_of, tables)) < epoch

    def island_of(self, view: PopulationView) -> int:
        """Return the island that a batch works on.

        It is each island's turn, but while a reset is due the strongest one's, which no view will reset: so nobody
        takes a parent from a population that is about to die out.
        """
        if not self.due(view):
            return island_of(view.batch, self.islands)
        return max(range(self.islands), key=lambda i: (strength(view.problem, self.living(view.elites(i))), -i))

    def reset(self, view: PopulationView) -> tuple[Placement, ...]:
        """Return the founders of the weakest islands, and what these islands bequeath.

        Founders are diverse elites of all islands: the best under the island's weighting first, then each the farthest
        from those before. Where a weakest island holds the record of a trade-off, the strongest one inherits it.
        """
        tables = [self.living(view.elites(island)) for island in range(self.islands)]
        order = sorted(range(self.islands), key=lambda i: (strength(view.problem, tables[i]), -i))
        strongest, weakest = order[-1], order[: min(self.count, self.islands - 1)]
        everyone, epoch = concatenated(tables), self.epoch(view.batch)
        inherits = self.rank(tables[strongest])
        placements: list[Placement] = []
        for island in weakest:
            founders = diverse_elites(view, everyone, island_weights(view.problem, view.seed, island), self.founders)
            placements += copies(view, everyone, island, founders, lambda score: ranked(score, epoch))
            placements += copies(
                view, records_of(view.problem, tables[island]), strongest, tables[island].numbers, inherits
            )
        return tuple(placements)


def strength(problem: Problem, table: EliteTable) -> float:
    """Return the mean over the lattice of weightings of the best score; VPO's set score (arXiv 2605.22817)."""
    if not len(table):
        return -math.inf
    points = problem.space.normalise(table.rewards)
    _, weights = weightings(points.shape[1], None)
    return float(weigh(points, weights).max(axis=0).mean())


def records_of(problem: Problem, table: EliteTable) -> EliteTable:
    """Return the rows that hold the record of a trade-off."""
    names, _ = weightings(len(problem.space.selected), problem.weight_vector)
    return rows_of(table, np.isin(table.cells, names))


def diverse_elites(view: PopulationView, table: EliteTable, weights: FloatArray, count: int) -> IntArray:
    """Return the numbers of elites that lie far apart in rewards: farthest first (Gonzalez 1985).

    Args:
        view: The population.
        table: Elites to choose from; only those are that no other beats at some trade-off.
        weights: Shape (k,): the first one is the best under these.
        count: How many at most.
    """
    points = view.problem.space.normalise(table.rewards)
    best = sorted({row for _, row, _ in trade_off_bids(view.problem, points)})
    numbers, points = table.numbers[best], points[best]
    chosen = [int((points @ weights).argmax())]
    distances = np.abs(points - points[chosen[0]]).sum(axis=1)
    while len(chosen) < count and distances.any():
        chosen.append(int(distances.argmax()))
        distances = np.minimum(distances, np.abs(points - points[chosen[-1]]).sum(axis=1))
    return numbers[chosen]
