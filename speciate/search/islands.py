"""Islands: turns, weightings and migration around a ring."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np

from speciate.domain.arrays import FloatArray, IntArray
from speciate.domain.candidate import Individual
from speciate.domain.problem import Problem
from speciate.search.archive import improvements
from speciate.search.cells import TARGET, weigh, weightings
from speciate.search.strategy import EliteTable, Placement, PopulationView

Rank = Callable[[float], float]
"""Map a score to a fitness; increasing."""

# Separates the weightings from other random streams of the run's seed.
_WEIGHTS_STREAM: Final = 0x1514A4D


def sends_migrants(batch: int, islands: int, interval: int) -> bool:
    """Return True for every ``interval``-th batch of an island, which sends migrants."""
    turn = batch // islands
    return islands > 1 and interval > 0 and turn > 0 and turn % interval == 0


def island_weights(problem: Problem, seed: int, island: int) -> FloatArray:
    """Return an island's own weighting of the objectives, which makes it specialise in one trade-off.

    Island 0 uses the problem's declared weights. Every other island, and island 0 without declared weights, draws
    w ~ Dir(1) from the run's seed, the problem and the island's number. Shape (k,), ≥ 0, sums to 1, read-only.
    """
    declared = problem.weight_vector if island == 0 else None
    return _weights(len(problem.space.selected), seed, problem.digest, island, declared)


class IslandBatch(NamedTuple):
    """Newly evaluated candidates of one island."""

    island: int
    candidates: list[Individual]
    points: FloatArray  # their normalised rewards, shape (n, k)
    scores: list[float]  # their scores under the island's weighting


def by_island(view: PopulationView, candidates: Sequence[Individual]) -> Iterator[IslandBatch]:
    for island in sorted({candidate.island for candidate in candidates}):
        residents = [candidate for candidate in candidates if candidate.island == island]
        points = view.problem.space.normalise([candidate.vector for candidate in residents])
        weights = island_weights(view.problem, view.seed, island)
        yield IslandBatch(island, residents, points, weigh(points, weights[None, :])[:, 0].tolist())


def copies(
    view: PopulationView, source: EliteTable, target: int, numbers: IntArray, rank: Rank = float
) -> tuple[Placement, ...]:
    """Return copies of elites for the same cells of another island, if they are better there.

    Trade-off and target cells rank the same on every island; all others rank by the weighting of the receiving island.
    """
    rows = np.flatnonzero(np.isin(source.numbers, numbers)).tolist()
    migrants = [
        Individual(int(source.numbers[row]), "", tuple(source.rewards[row].tolist()), island=target) for row in rows
    ]
    points = view.problem.space.normalise(source.rewards[rows])
    island_weighting = island_weights(view.problem, view.seed, target)
    names, lattice = weightings(points.shape[1], view.problem.weight_vector)
    weights = dict(zip(names, lattice, strict=True))
    weights_there = np.array([weights.get(source.cells[row], island_weighting) for row in rows]).reshape(points.shape)
    scores = (points * weights_there).sum(axis=1).tolist()
    bids = [
        (source.cells[row], i, source.fitness[row].item() if source.cells[row].startswith(TARGET) else rank(scores[i]))
        for i, row in enumerate(rows)
    ]
    return tuple(improvements(view.elites(target), target, bids, migrants))


@lru_cache(maxsize=4096)
def _weights(k: int, seed: int, problem: str, island: int, declared: tuple[float, ...] | None) -> FloatArray:
    if declared is None:
        weights = np.random.default_rng([_WEIGHTS_STREAM, seed, int(problem, 16), island]).dirichlet(np.ones(k))
    else:
        weights = np.array(declared)
    weights.setflags(write=False)
    return weights
