"""Selection by a weighted sum: of weights drawn anew each time, or of those the island prefers."""

from __future__ import annotations

import numpy as np

from speciate.domain.reward import FloatArray


def random_scalarization(
    points: FloatArray,
    rng: np.random.Generator,
    weights: FloatArray,  # noqa: ARG001 - one signature for all operators
    alpha: float = 1.0,
) -> int:
    """Choose the best under weights w ~ Dir(α) that are drawn for this choice alone.

    The search-time counterpart of VPO's reward (arXiv 2605.22817); the idea is ParEGO's (Knowles 2006).

    Args:
        points: Normalised rewards, shape (n, k), higher is better.
        rng: Draws the weights, then one of those that are best.
        weights: Not used.
        alpha: Concentration: 1 is uniform on the simplex, smaller values prefer its corners.

    Returns:
        The row that was chosen.
    """
    return _best(points @ rng.dirichlet(np.full(points.shape[1], alpha)), rng)


def best_weighted(points: FloatArray, rng: np.random.Generator, weights: FloatArray) -> int:
    """Choose the best under the island's weighting: the scalar, greedy control of the vector operators.

    Args:
        points: Normalised rewards, shape (n, k), higher is better.
        rng: Draws one of those that are best.
        weights: Shape (k,): the problem's declared weights, or those that the island has drawn.

    Returns:
        The row that was chosen.
    """
    return _best(points @ weights, rng)


def _best(scores: FloatArray, rng: np.random.Generator) -> int:
    (best,) = (scores == scores.max()).nonzero()
    return int(best[rng.integers(len(best))])
