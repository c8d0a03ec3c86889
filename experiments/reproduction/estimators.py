"""Estimate the reward of Vector Policy Optimization: the expected best of k answers under random weightings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.arrays import FloatArray
from speciate.domain.errors import InvalidInputError
from speciate.tournaments.statistics.estimators import best_at_k

_BLOCK: Final = 1 << 22  # numbers held at once


def expected_best_at_k(rewards: ArrayLike, k: int | Sequence[int], weightings: ArrayLike) -> FloatArray:
    """Return E_w[best@k of wᵀr] over the given weightings.

    The maximum is inside, the mean over weightings outside, as in the reward of Vector Policy Optimization
    (Bahlous-Boldi et al. 2026, arXiv 2605.22817).

    Args:
        rewards: Shape (n, d), normalised, higher is better; failed samples need a row as well.
        k: One or several numbers of draws, 1 ≤ k ≤ n.
        weightings: Shape (n_weightings, d), each non-negative with sum 1. Use the same for every policy.

    Returns:
        Shape () for one k, (n_ks,) for several.

    Raises:
        InvalidInputError: The shapes do not match, a value is not finite, or a k is out of range.
    """
    points, weights = np.asarray(rewards, dtype=np.float64), np.asarray(weightings, dtype=np.float64)
    if points.shape[1] != weights.shape[1]:
        raise InvalidInputError(
            f"rewards have {points.shape[1]} components and weightings {weights.shape[1]}.",
            remedy="Draw weightings of the dimension of the reward vector.",
        )
    if (weights < 0).any() or not np.allclose(weights.sum(axis=1), 1.0):
        raise InvalidInputError("A weighting is negative or does not sum to 1.", remedy="Draw points of the simplex.")
    several = [k] if isinstance(k, int | np.integer) else list(k)
    rows = max(1, _BLOCK // len(points))
    total = np.zeros(len(several))
    for start in range(0, len(weights), rows):
        total += best_at_k(weights[start : start + rows] @ points.T, several).sum(axis=0)
    mean: FloatArray = total / len(weights)
    return mean[0] if isinstance(k, int | np.integer) else mean
