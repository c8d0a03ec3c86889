"""Epochs: reset the population of an island although the store never deletes.

A cell only accepts a candidate of higher fitness. Therefore the integer part of a fitness is the epoch and its fraction
the score: a candidate of a later epoch outranks all earlier ones in the same cells, and the archive does not grow. An
island's epoch is the newest among its cells; older elites are dead and hidden. Epochs are counted in batches, so a late
child whose batch began before the reset is recognised by its batch and rejected.

Sources: Romera-Paredes et al. 2024 (FunSearch, Nature 625, Methods: the weaker half of the islands is reset from the
best of the others); arXiv 2501.09891, section 3.2 (Mind Evolution: founders are diverse elites of all islands).
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from speciate.domain.arrays import FloatArray, IntArray
from speciate.domain.candidate import Individual
from speciate.domain.problem import Problem
from speciate.search.archive import Bid, concatenated, improvements, pool_of, rows_of, trade_off_bids
from speciate.search.cells import TARGET, is_clocked, weigh, weightings
from speciate.search.islands import IslandBatch, Rank, by_island, copies, island_weights
from speciate.search.strategy import EliteTable, Placement, PopulationView, Strategy


def ranked(score: float, epoch: int) -> float:
    """Return the fitness of a score in an epoch: between ``epoch + ¼`` and ``epoch + ¾``, rising with the score."""
    return epoch + 0.5 + 0.25 * score / (1.0 + abs(score))


def epoch_of(table: EliteTable) -> int:
    """Return the epoch of an island with this archive; 0 for an empty one."""
    fitness = table.fitness[[not is_clocked(cell) and not cell.startswith(TARGET) for cell in table.cells]]
    return math.floor(fitness.max()) if len(fitness) else 0


@dataclass(frozen=True, slots=True)
class Resets:
    """Schedule of island resets and selection of the founders."""

    islands: int
    interval: int  # turns of every island between two resets; 0 for never
    count: int  # islands reset each time; at least one is spared
    founders: int  # elites that found a new population

    @property
    def enabled(self) -> bool:
        return self.islands > 1 and self.interval > 0

    def epoch(self, batch: int) -> int:
        return batch // (self.islands * self.interval) if self.enabled else 0

    def living(self, table: EliteTable) -> EliteTable:
        """Return the rows of an archive's newest epoch and its target cells, without cells that rank by time."""
        epoch = epoch_of(table) if self.enabled else -math.inf
        alive = [
            cell.startswith(TARGET) or (not is_clocked(cell) and fit >= epoch)
            for cell, fit in zip(table.cells, table.fitness, strict=True)
        ]
        return table if all(alive) else rows_of(table, np.array(alive, dtype=np.bool_))

    def rank(self, table: EliteTable) -> Rank:
        if not self.enabled:
            return float
        epoch = epoch_of(table)
        return lambda score: ranked(score, epoch)

    def too_late(self, view: PopulationView, table: EliteTable) -> bool:
        """Return True if the view's batch began before the last reset of the island with this archive."""
        return self.epoch(view.batch) < epoch_of(table) if self.enabled else False

    def due(self, view: PopulationView) -> bool:
        """Return True if the epoch's reset has not been applied.

        Only checked in the first two turns of an epoch, so that other batches need not read all archives.
        """
        epoch = self.epoch(view.batch)
        if epoch == 0 or view.batch % (self.islands * self.interval) >= 2 * self.islands:
            return False
        tables = [view.elites(island) for island in range(self.islands)]
        return any(map(len, tables)) and max(map(epoch_of, tables)) < epoch

    def island_of(self, view: PopulationView) -> int:
        """Return the island of a batch.

        Islands take turns. While a reset is due, every batch works on the strongest island, which will not be reset, so
        that no parent comes from a population about to be replaced.
        """
        if not self.due(view):
            return view.batch % self.islands
        return max(range(self.islands), key=lambda i: (strength(view.problem, self.living(view.elites(i))), -i))

    def migrate(
        self, view: PopulationView, choose: Callable[[FloatArray, FloatArray], Sequence[int]]
    ) -> tuple[Placement, ...]:
        """Return copies of the elites that ``choose`` selects on the island in turn, by their rows, for the next one.

        It gets their normalised rewards, shape (n, k), and the island's weighting, shape (k,).
        """
        source = view.batch % self.islands
        table, target = self.living(view.elites(source)), (source + 1) % self.islands
        if not len(table):
            return ()
        pool = pool_of(view.problem.space, table)
        migrants = choose(pool.points, island_weights(view.problem, view.seed, source))
        return copies(view, table, target, pool.numbers[migrants], self.rank(view.elites(target)))

    def reset(self, view: PopulationView) -> tuple[Placement, ...]:
        """Return the founders of the weakest islands, and the records to save from them.

        Founders are diverse elites of all islands: first the best under the island's weighting, then repeatedly the
        farthest from those chosen. Trade-off records of a weak island are copied to the strongest one.
        """
        tables = [self.living(view.elites(island)) for island in range(self.islands)]
        order = sorted(range(self.islands), key=lambda i: (strength(view.problem, tables[i]), -i))
        strongest, weakest = order[-1], order[: min(self.count, self.islands - 1)]
        all_elites, epoch = concatenated(tables), self.epoch(view.batch)
        strongest_rank = self.rank(tables[strongest])
        names, _ = weightings(len(view.problem.space.selected), view.problem.weight_vector)
        placements: list[Placement] = []
        for island in weakest:
            founders = diverse_elites(view, all_elites, island_weights(view.problem, view.seed, island), self.founders)
            placements += copies(view, all_elites, island, founders, lambda score: ranked(score, epoch))
            records = rows_of(tables[island], np.isin(tables[island].cells, names))
            placements += copies(view, records, strongest, records.numbers, strongest_rank)
        return tuple(placements)


def strength(problem: Problem, table: EliteTable) -> float:
    """Return the mean over the lattice of weightings of the best score: VPO's set score (arXiv 2605.22817)."""
    if not len(table):
        return -math.inf
    points = problem.space.normalise(table.rewards)
    _, weights = weightings(points.shape[1], None)
    return float(weigh(points, weights).max(axis=0).mean())


def diverse_elites(view: PopulationView, table: EliteTable, weights: FloatArray, count: int) -> IntArray:
    """Return the numbers of elites far apart in rewards: farthest-first traversal (Gonzalez 1985).

    Only the best of some trade-off are eligible; the first choice is the best under ``weights``, shape (k,).
    """
    points = view.problem.space.normalise(table.rewards)
    best = sorted({row for _, row, _ in trade_off_bids(view.problem, points)})
    numbers, points = table.numbers[best], points[best]
    rows = [int((points @ weights).argmax())]
    distances = np.abs(points - points[rows[0]]).sum(axis=1)
    while len(rows) < count and distances.any():
        rows.append(int(distances.argmax()))
        distances = np.minimum(distances, np.abs(points - points[rows[-1]]).sum(axis=1))
    return numbers[rows]


class IslandStrategy(Strategy):
    """Base of strategies whose islands are reset from time to time; ``_resets`` is their schedule."""

    _resets: Resets

    @property
    def islands(self) -> int:
        return self._resets.islands

    def place(self, view: PopulationView, candidates: Sequence[Individual]) -> tuple[Placement, ...]:
        placements: list[Placement] = []
        for batch in by_island(view, candidates):
            table = view.elites(batch.island)
            if not self._resets.too_late(view, table):
                bids = self._bids(view, batch, self._resets.rank(table))
                placements += improvements(table, batch.island, bids, batch.candidates)
        return tuple(placements)

    @abstractmethod
    def _bids(self, view: PopulationView, batch: IslandBatch, rank: Rank) -> list[Bid]: ...

    def living(self, table: EliteTable) -> EliteTable:
        return self._resets.living(table)
