"""Curiosity: elites that entered lately are chosen more, because the region they came from still pays."""

from __future__ import annotations

import numpy as np

from speciate.domain.reward import FloatArray


def curiosity(points: FloatArray, rng: np.random.Generator, weights: FloatArray) -> int:  # noqa: ARG001
    """Draw a row with a probability in proportion to 1 / its age in ranks: 1 for the youngest elite, ½ for the next.

    Cully and Demiris 2018 (arXiv 1708.09251, section IV) keep a score for every cell that rises when a child of it
    enters the archive and falls when none does. An archive that only knows its elites does not hold such scores; their
    ages hold the same evidence: an elite that entered lately is such a child, and an old one has since been drawn again
    and again without a child that took its cell.

    Args:
        points: Normalised rewards, shape (n, k), in order of birth (as ``Pool`` has them).
        rng: Draws the row.
        weights: Not used: no objective outweighs another.

    Returns:
        The row that was chosen.
    """
    n = len(points)
    edges = (1.0 / np.arange(1, n + 1)).cumsum()
    rank = min(int(edges.searchsorted(rng.random() * edges[-1], side="right")), n - 1)
    return n - 1 - rank
