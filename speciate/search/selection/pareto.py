"""Pareto tournament: the front of a small random sample."""

from __future__ import annotations

from typing import Final

import numpy as np

from speciate.domain.reward import FloatArray, pareto_front

SAMPLE: Final = 8
"""Candidates that meet in one tournament."""


def pareto_tournament(points: FloatArray, rng: np.random.Generator) -> int:
    """Choose uniformly from the Pareto front of a random sample (Horn, Nafpliotis & Goldberg 1994, section III).

    Args:
        points: Normalised rewards, shape (n, k), higher is better.
        rng: Draws the sample and the winner.

    Returns:
        Position of the parent.
    """
    sample = rng.choice(len(points), size=min(SAMPLE, len(points)), replace=False)
    front = sample[pareto_front(points[sample])]
    return int(front[rng.integers(len(front))])
