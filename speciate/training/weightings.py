"""Draw random weightings of a reward vector: points of the simplex from a symmetric Dirichlet distribution."""

from __future__ import annotations

import numpy as np

from speciate.domain.arrays import FloatArray


def draw_weightings(groups: int, draws: int, dimensions: int, *, alpha: float, rng: np.random.Generator) -> FloatArray:
    """Return weightings for every group, shape (groups, draws, dimensions), summing to 1 along the last axis.

    ``alpha`` is the concentration of the Dirichlet distribution; 1 is uniform on the simplex.
    """
    if dimensions == 1:
        return np.ones((groups, draws, 1))
    mass = rng.standard_gamma(alpha, (groups, draws, dimensions))
    total = mass.sum(axis=-1, keepdims=True)
    if (total > 0).all():
        mass /= total
        return mass
    # With a tiny alpha all gammas of a draw can underflow: such a draw becomes a random corner of the simplex.
    corners = np.eye(dimensions)[rng.integers(dimensions, size=mass.shape[:-1])]
    weightings: FloatArray = np.where(total > 0, mass / np.where(total > 0, total, 1.0), corners)
    return weightings
