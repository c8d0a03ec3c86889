"""Lexicase selection: parents are chosen objective by objective in random order, so that specialists breed.

Spector 2012; ε-lexicase: La Cava, Spector, Danai 2016 (GECCO) and La Cava, Helmuth, Spector, Moore 2019 (Evolutionary
Computation 27:3), the *semi-dynamic* variant: ε is the median absolute deviation of the whole population, the bar is
set by the best of those still in the pool.
"""

from __future__ import annotations

import numpy as np

from speciate.domain.reward import FloatArray


def epsilon_lexicase(points: FloatArray, rng: np.random.Generator, weights: FloatArray) -> int:  # noqa: ARG001
    """Choose by ε-lexicase with the median absolute deviation of each objective as its ε.

    Args:
        points: Normalised rewards, shape (n, k), higher is better.
        rng: Draws the order of the objectives, then one of those that are left.
        weights: Not used: no objective outweighs another.

    Returns:
        The row that was chosen.
    """
    return _last_one(points, deviations(points), rng)


def lexicase(points: FloatArray, rng: np.random.Generator, weights: FloatArray) -> int:  # noqa: ARG001
    """Choose by lexicase without tolerance; for rewards that are passed or failed. Arguments as above."""
    return _last_one(points, np.zeros(points.shape[1]), rng)


def deviations(points: FloatArray) -> FloatArray:
    """Return the median absolute deviation of each column, shape (k,), of points of shape (n, k)."""
    return _medians(np.abs(points - _medians(points)))


def _last_one(points: FloatArray, epsilon: FloatArray, rng: np.random.Generator) -> int:
    """Narrow the pool down, one objective after the other.

    An objective on which the pool spreads no further than ε drops nobody, now or later, so only the others are drawn:
    the order among them is as uniform as in the textbook, and each step makes the pool smaller.
    """
    pool = np.arange(len(points))
    inside = points
    while len(pool) > 1:
        bar = inside.max(axis=0) - epsilon
        (telling,) = (inside.min(axis=0) < bar).nonzero()
        if not len(telling):
            break
        objective = telling[rng.integers(len(telling))]
        passed = inside[:, objective] >= bar[objective]
        pool, inside = pool[passed], inside[passed]
    return int(pool[rng.integers(len(pool))])


def _medians(columns: FloatArray) -> FloatArray:
    # A sort of a few dozen rows takes a tenth of the time of np.median.
    ordered = np.sort(columns, axis=0)
    n = len(ordered)
    medians: FloatArray = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2.0
    return medians
