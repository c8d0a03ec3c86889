"""Dominated hypervolume of a set of reward vectors: exact up to two dimensions, sampled beyond. Higher is better.

SciPy has no implementation, and moocore, pymoo or BoTorch are large dependencies for one number.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.arrays import FloatArray
from speciate.domain.reward import large_front

_FLAT = 2
"""Dimensions of exact volumes: in more of them, slicing a front of a thousand points at each end takes seconds."""
_SAMPLES = 8192


def hypervolume_curve(points: ArrayLike, ends: Sequence[int]) -> FloatArray:
    """Return the hypervolume between zero and one of the first points, for several numbers of them.

    Beyond two dimensions it is estimated from evenly spread points of the box between zero and the best of every
    component, the same for all sets, so that curves never fall.

    Points (n, d) are normalised, higher is better; those that do not exceed zero in every component add 0, and a
    component above one counts as one. The result has the shape of ``ends``, which ascend.
    """
    raised = np.clip(np.asarray(points, dtype=np.float64), 0.0, 1.0)
    box = raised[: ends[-1]].max(axis=0, initial=0.0)
    missed = _evenly(_SAMPLES, raised.shape[1]) * box
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
        values.append(_area(front) if raised.shape[1] <= _FLAT else box.prod() * (1.0 - len(missed) / _SAMPLES))
    return np.array(values)


def _evenly(count: int, dimensions: int) -> FloatArray:
    """Return a Kronecker sequence of generalised golden ratios (Roberts 2018) in the unit cube, shape (n, d)."""
    ratio = 2.0
    for _ in range(60):
        ratio = (1.0 + ratio) ** (1.0 / (dimensions + 1))
    steps = ratio ** -np.arange(1.0, dimensions + 1)
    return (0.5 + np.arange(1, count + 1)[:, None] * steps) % 1.0


def _area(front: FloatArray) -> float:
    if front.shape[1] == 1:
        return float(front.max(initial=0.0))
    front = front[np.argsort(-front[:, 1], kind="stable")]
    # Sorted by the second component, descending: only increases of the first add area.
    widest = np.maximum.accumulate(front[:, 0])
    return float(np.diff(widest, prepend=0.0) @ front[:, 1])
