"""Lexicase selection: objectives in random order, each keeping only the best of those that are left."""

from __future__ import annotations

import numpy as np

from speciate.domain.reward import FloatArray


def lexicase(points: FloatArray, rng: np.random.Generator) -> int:
    """Choose a parent by lexicase selection (Helmuth, Spector & Matheson 2015, section II).

    Args:
        points: Normalised rewards, shape (n, k), higher is better.
        rng: Draws the order of objectives and breaks ties.

    Returns:
        Position of the parent.
    """
    return _filter(points, np.zeros(points.shape[1]), rng)


def epsilon_lexicase(points: FloatArray, rng: np.random.Generator) -> int:
    """Choose a parent by static ε-lexicase selection (La Cava, Spector & Danai 2016, section 3.1).

    A candidate survives an objective when it is within ε of the best that is left, ε being the median absolute
    deviation of that objective over all candidates. So specialists of every objective are chosen, but one lucky
    decimal does not decide.

    Args:
        points: Normalised rewards, shape (n, k), higher is better.
        rng: Draws the order of objectives and breaks ties.

    Returns:
        Position of the parent.
    """
    epsilon = np.median(np.abs(points - np.median(points, axis=0)), axis=0)
    return _filter(points, epsilon, rng)


def _filter(points: FloatArray, epsilon: FloatArray, rng: np.random.Generator) -> int:
    left = np.arange(len(points))
    for j in rng.permutation(points.shape[1]):
        if len(left) == 1:
            break
        column = points[left, j]
        left = left[column >= column.max() - epsilon[j]]
    return int(left[rng.integers(len(left))])
