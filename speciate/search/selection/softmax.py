"""Boltzmann selection over the island's weighting, as in FunSearch and Mind Evolution."""

from __future__ import annotations

import numpy as np

from speciate.domain.reward import FloatArray


def softmax(points: FloatArray, rng: np.random.Generator, weights: FloatArray, temperature: float = 0.1) -> int:
    """Draw a row with probability ∝ exp(wᵀr / temperature).

    Romera-Paredes et al. 2024 (Nature 625, Methods) and arXiv 2501.09891, section 3.2.

    Args:
        points: Normalised rewards, shape (n, k), higher is better.
        rng: Draws the row.
        weights: Shape (k,): the problem's declared weights, or those that the island has drawn.
        temperature: In units of normalised reward, where 1 is the declared range.

    Returns:
        The row that was chosen.
    """
    scores = (points @ weights) / temperature
    chances = np.exp(scores - scores.max())
    edges = chances.cumsum()
    return int(min(edges.searchsorted(rng.random() * edges[-1], side="right"), len(points) - 1))
