"""Dominated hypervolume of a set of reward vectors: exact up to four dimensions, sampled beyond. Higher is better.

SciPy has no implementation, and moocore, pymoo or BoTorch are large dependencies for one number.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.arrays import FloatArray
from speciate.domain.errors import InvalidInputError
from speciate.domain.reward import large_front, pareto_front

EXACT_DIMENSIONS = 4

_FLAT = 2
"""Dimensions up to which a curve is exact: slicing a front of a thousand points at each of its ends takes seconds."""


def hypervolume(
    points: ArrayLike,
    reference: ArrayLike,
    rng: np.random.Generator | None = None,
    draws: int = 100_000,
    exact_points: int | None = None,
) -> float:
    """Return the volume of all vectors that some point dominates and that dominate the reference.

    Exact by slicing: along the last component, every slab between two neighbouring values is a hypervolume of one
    dimension less (While et al. 2006, IEEE TEC 10(1)). The cost grows as n^(d−1), so beyond four dimensions the volume
    is estimated from uniform draws in the box between the reference and the best of every component.

    Points (n, d) are normalised, higher is better; those that do not exceed the reference (d,) in every component add
    0. ``rng`` draws the sample. Four dimensions are computed exactly for at most ``exact_points`` points; None is no
    limit.
    """
    raised, origin = np.asarray(points, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    above = raised - origin
    above = above[(above > 0).all(axis=1)]
    many = exact_points is not None and above.shape[1] == EXACT_DIMENSIONS and len(above) > exact_points
    if above.shape[1] <= EXACT_DIMENSIONS and not many:
        return _sliced(above)
    if rng is None:
        raise InvalidInputError(
            f"A hypervolume in {above.shape[1]} dimensions is sampled.", remedy="Pass an rng with a recorded seed."
        )
    return _sampled(above, rng, draws)


def hypervolume_curve(points: ArrayLike, ends: Sequence[int], draws: int = 8192) -> FloatArray:
    """Return the hypervolume between zero and one of the first points, for several numbers of them.

    Beyond two dimensions it is estimated from the same evenly spread points of the unit cube for all sets, so that
    curves never fall and differ from each other by less than their errors.

    Points (n, d) are normalised, higher is better; those that do not exceed zero in every component add 0, and a
    component above one counts as one. The result has the shape of ``ends``, which ascend.
    """
    raised = np.clip(np.asarray(points, dtype=np.float64), 0.0, 1.0)
    missed = _evenly(draws, raised.shape[1])
    front = raised[:0]
    values = []
    for begin, end in pairwise([0, *ends]):
        new = raised[begin:end]
        pool = np.concatenate([front, new[(new > 0).all(axis=1)]])
        reduced = large_front(pool)
        if raised.shape[1] > _FLAT:
            for point in pool[reduced[reduced >= len(front)]]:
                missed = missed[(missed > point).any(axis=1)]
        front = pool[reduced]
        values.append(_sliced(front) if raised.shape[1] <= _FLAT else 1.0 - len(missed) / draws)
    return np.array(values)


def _evenly(count: int, dimensions: int) -> FloatArray:
    """Return a Kronecker sequence of generalised golden ratios (Roberts 2018) in the unit cube, shape (n, d)."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (dimensions + 1))
    steps = ratio ** -np.arange(1.0, dimensions + 1)
    return (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1.0


def _sliced(points: FloatArray) -> float:
    if len(points) == 0:
        return 0.0
    if points.shape[1] == 1:
        return float(points.max())
    points = points[pareto_front(points)]
    points = points[np.argsort(-points[:, -1], kind="stable")]
    if points.shape[1] == 2:
        # Sorted by the second component, descending: only increases of the first add area.
        widest = np.maximum.accumulate(points[:, 0])
        return float(np.diff(widest, prepend=0.0) @ points[:, 1])
    heights = points[:, -1] - np.append(points[1:, -1], 0.0)
    return sum(float(h) * _sliced(points[: i + 1, :-1]) for i, h in enumerate(heights) if h > 0)


def _sampled(points: FloatArray, rng: np.random.Generator, draws: int) -> float:
    if len(points) == 0:
        return 0.0
    points = points[pareto_front(points)]
    box = points.max(axis=0)
    sample = rng.random((draws, points.shape[1])) * box
    hit = np.zeros(draws, dtype=np.bool_)
    for point in points:
        hit |= (sample <= point).all(axis=1)
    return float(hit.mean()) * float(np.prod(box))
