"""Islands: which one a batch works on, what each one prefers, and how elites travel around the ring."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from speciate.domain.problem import Problem
from speciate.domain.reward import FloatArray
from speciate.search.archive import Bid, improvements
from speciate.search.cells import weigh
from speciate.search.features import is_feature_cell
from speciate.search.strategy import Evaluated, IntArray, Placement, PopulationView

# Keeps the weightings apart from every other stream of random numbers that is made from the seed of a run.
_WEIGHTS_STREAM: Final = 0x1514A4D


def island_of(batch: int, islands: int) -> int:
    """Return the island that a batch works on: each in its turn, so that a batch reads one archive."""
    return batch % islands


def next_island(island: int, islands: int) -> int:
    """Return the island that receives migrants: the ring."""
    return (island + 1) % islands


def sends_migrants(batch: int, islands: int, interval: int) -> bool:
    """Tell whether a batch sends migrants from its island: every ``interval``-th batch of each island does.

    Args:
        batch: Ordinal of the batch, counted from 0.
        islands: Number of islands.
        interval: Batches of one island between two departures; 0 for never.
    """
    turn = batch // islands
    return islands > 1 and interval > 0 and turn > 0 and turn % interval == 0


def island_weights(problem: Problem, seed: int, island: int) -> FloatArray:
    """Return an island's own weighting of the objectives, which makes it a specialist of one trade-off.

    Island 0 takes the weights that the problem declares; every other one, and island 0 without them, draws w ~ Dir(1)
    from the seed of the run and its own number.

    Returns:
        Shape (k,), ≥ 0, sums to 1, read-only.
    """
    declared = problem.weight_vector if island == 0 else None
    return _weights(len(problem.space.selected), seed, island, declared)


def migrate(view: PopulationView, source: int, target: int, migrants: IntArray) -> tuple[Placement, ...]:
    """Return copies of elites for the cells of the same name on another island, where they are better there.

    Trade-off cells rank alike everywhere; feature cells rank by the weighting of the island that receives.

    Args:
        view: The population.
        source: Island that sends.
        target: Island that receives.
        migrants: Run-wide numbers of elites of ``source``.
    """
    table = view.elites(source)
    rows = np.flatnonzero(np.isin(table.numbers, migrants)).tolist()
    travellers = [Evaluated(int(table.numbers[row]), source, "", tuple(table.rewards[row].tolist())) for row in rows]
    weights = island_weights(view.problem, view.seed, target)
    there = weigh(view.problem.space.normalise(table.rewards[rows]), weights[None, :])[:, 0].tolist()
    bids: list[Bid] = []
    for i, row in enumerate(rows):
        cell = table.cells[row]
        bids.append((cell, i, there[i] if is_feature_cell(cell) else float(table.fitness[row])))
    return tuple(improvements(view.elites(target), target, bids, travellers))


@lru_cache(maxsize=4096)
def _weights(k: int, seed: int, island: int, declared: tuple[float, ...] | None) -> FloatArray:
    if declared is None:
        weights = np.random.default_rng([_WEIGHTS_STREAM, seed, island]).dirichlet(np.ones(k))
    else:
        weights = np.array(declared)
    weights.setflags(write=False)
    return weights
