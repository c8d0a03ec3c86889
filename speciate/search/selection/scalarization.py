"""Random scalarization: another trade-off in every draw."""

from __future__ import annotations

import numpy as np

from speciate.domain.reward import FloatArray


def random_scalarization(points: FloatArray, rng: np.random.Generator) -> int:
    """Choose the best parent under weights drawn from Dir(1), the weighting of VPO (arXiv 2605.22817, section 3).

    Args:
        points: Normalised rewards, shape (n, k), higher is better.
        rng: Draws the weights and breaks ties.

    Returns:
        Position of the parent.
    """
    scores = points @ rng.dirichlet(np.ones(points.shape[1]))
    best = np.flatnonzero(scores == scores.max())
    return int(best[rng.integers(len(best))])
