"""The entropy law: recovery, and its distinction from a straight line."""

import numpy as np
import pytest

from speciate.domain.errors import InvalidInputError
from speciate.tournaments.statistics.entropy_law import fit_entropy_law


def test_the_law_is_found_through_noise():
    rng = np.random.default_rng(0)
    entropy = np.linspace(2.0, 0.1, 60)
    law = fit_entropy_law(entropy, -0.1 * np.exp(entropy) + 0.9 + rng.normal(0, 0.005, 60))
    assert law["a"] == pytest.approx(0.1, abs=0.003)
    assert law["b"] == pytest.approx(0.9, abs=0.01)
    assert law["r_squared"] > 0.99 > law["r_squared_line"]
    assert law["ceiling"] == pytest.approx(0.8, abs=0.01)


def test_a_straight_line_is_recognised():
    entropy = np.linspace(2.0, 0.1, 30)
    law = fit_entropy_law(entropy, 1 - 0.3 * entropy)
    assert law["r_squared_line"] == pytest.approx(1.0)
    assert law["r_squared"] < 0.99


@pytest.mark.parametrize("reward", [0.0, 0.1, -0.7, 1e9])
def test_constant_rewards_are_explained(reward):
    law = fit_entropy_law([0.3, 0.9, 1.7], [reward] * 3)
    assert (law["r_squared"], law["r_squared_line"]) == (1.0, 1.0)
    assert law["a"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(
    ("entropies", "rewards"),
    [
        ([1.0, 2.0], [0.1, 0.2]),
        ([1.0] * 5, [0.1, 0.2, 0.3, 0.4, 0.5]),
        ([1, 2, np.nan], [1, 2, 3]),
        ([1, 2, 3], [1, 2]),
    ],
    ids=["two", "constant", "nan", "lengths"],
)
def test_too_little_to_fit_is_refused(entropies, rewards):
    with pytest.raises(InvalidInputError):
        fit_entropy_law(entropies, rewards)
