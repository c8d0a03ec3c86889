"""The expected best of k answers under weightings, against enumeration and a known integral."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from experiments.reproduction.estimators import expected_best_at_k
from speciate.domain.errors import InvalidInputError


def test_expected_best_takes_the_maximum_inside() -> None:
    rng = np.random.default_rng(3)
    rewards, weightings = rng.random((6, 3)), rng.dirichlet(np.ones(3), 5)
    curve = expected_best_at_k(rewards, [1, 2, 6], weightings)
    for column, k in enumerate((1, 2, 6)):
        subsets = list(itertools.combinations(range(6), k))
        brute = np.mean([[(rewards[list(subset)] @ w).max() for subset in subsets] for w in weightings])
        assert curve[column] == pytest.approx(brute, abs=1e-12)
    assert expected_best_at_k(rewards, 2, weightings) == pytest.approx(curve[1], abs=1e-12)


def test_two_specialists_beat_two_generalists() -> None:
    # E max(w, 1 − w) = 3/4 for w uniform on [0, 1].
    weights = (np.arange(4000) + 0.5) / 4000
    weightings = np.stack([weights, 1 - weights], axis=1)
    assert expected_best_at_k([[1.0, 0.0], [0.0, 1.0]], 2, weightings) == pytest.approx(0.75, abs=1e-6)
    assert expected_best_at_k([[0.5, 0.5], [0.5, 0.5]], 2, weightings) == pytest.approx(0.5)


@pytest.mark.parametrize("weightings", [[[1.0]], [[0.7, 0.7]], [[1.5, -0.5]]])
def test_weightings_are_points_of_the_right_simplex(weightings: list[list[float]]) -> None:
    with pytest.raises(InvalidInputError):
        expected_best_at_k([[0.0, 1.0]], 1, weightings)
