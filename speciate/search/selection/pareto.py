"""Pareto tournament: a few contestants, and one of those that no other contestant dominates."""

from __future__ import annotations

import numpy as np

from speciate.domain.reward import FloatArray, pareto_front


def pareto_tournament(
    points: FloatArray,
    rng: np.random.Generator,
    weights: FloatArray,  # noqa: ARG001 - one signature for all operators
    size: int = 4,
) -> int:
    """Draw ``size`` contestants and then one that is not dominated among them (Horn, Nafpliotis, Goldberg 1994).

    With many objectives nearly all are undominated and the choice approaches a uniform one: prefer ε-lexicase there.

    Args:
        points: Normalised rewards, shape (n, k), higher is better.
        rng: Draws the contestants without replacement, then the winner.
        weights: Not used.
        size: Number of contestants; all rows where there are fewer.

    Returns:
        The row that was chosen.
    """
    contestants = rng.choice(len(points), size=min(size, len(points)), replace=False)
    winners = contestants[pareto_front(points[contestants])]
    return int(winners[rng.integers(len(winners))])
