"""Leave-one-out credit of each answer for the expected maximum of κ answers."""

from __future__ import annotations

from functools import lru_cache
from math import comb

import numpy as np

from speciate.domain.errors import InvalidInputError
from speciate.training.reward_batch import EstimatorConfig, FloatArray


def choose_kappa(config: EstimatorConfig, size: int) -> int:
    """Return κ for groups of ``size`` answers."""
    kappa = min(8, max(size // 2, 1)) if config.kappa is None else config.kappa
    if kappa > size - 1:
        raise InvalidInputError(
            f"kappa = {kappa} in a group of {size} answers: expected at most {size - 1}, since one answer is left out.",
            remedy="Choose a smaller kappa (between 2 and half the group), or larger groups.",
        )
    return kappa


def leave_one_out(scores: FloatArray, kappa: int, baseline: int | None = None) -> FloatArray:
    """Return each answer's leave-one-out credit for the expected maximum of κ answers; scores have shape (..., n).

    The credit of answer i is E[max(x_i, max of a random (κ−1)-subset of the others)] − E[max of a random b-subset of
    the others]: a baseline that does not depend on x_i, so that the policy gradient stays unbiased. 1 ≤ κ, b ≤ n − 1;
    without ``baseline``, b is κ.
    """
    order = np.argsort(scores, axis=-1, kind="stable")
    ascending = np.take_along_axis(scores, order, axis=-1)
    shares = ascending @ _credit_matrix(scores.shape[-1], kappa, kappa if baseline is None else baseline).T
    result = np.empty_like(shares)
    np.put_along_axis(result, order, shares, axis=-1)
    return result


@lru_cache(maxsize=64)
def _credit_matrix(size: int, kappa: int, baseline: int) -> FloatArray:
    """Return the (n, n) matrix that maps ascending scores to the shares of the same ranks."""
    matrix = np.zeros((size, size))
    joined, left_out = comb(size - 1, kappa - 1), comb(size - 1, baseline)
    for rank in range(size):
        matrix[rank, rank] = comb(rank, kappa - 1) / joined
        for other in range(size):
            if other == rank:
                continue
            if other > rank and kappa >= 2:
                matrix[rank, other] += comb(other - 1, kappa - 2) / joined
            below = other - (other > rank)
            matrix[rank, other] -= comb(below, baseline - 1) / left_out
    matrix.setflags(write=False)
    return matrix
