"""Performance profiles by hand."""

from __future__ import annotations

import numpy as np
import pytest

from speciate.domain.errors import InvalidInputError
from speciate.tournaments.profiles import performance_profile

INF = np.inf


def test_a_profile_starts_with_wins_and_ends_with_what_was_solved() -> None:
    costs = [[10, 20], [30, 30], [INF, 5], [INF, INF]]
    assert performance_profile(costs, [1.0, 2.0, 1e9]).tolist() == [[0.5, 0.5, 0.5], [0.5, 0.75, 0.75]]


def test_profiles_never_fall() -> None:
    costs = np.random.default_rng(0).lognormal(size=(50, 4))
    profile = performance_profile(costs, np.geomspace(1, 100, 30))
    assert (np.diff(profile, axis=1) >= 0).all()
    assert profile[:, 0].sum() == pytest.approx(1.0)
    assert profile[:, -1].tolist() == [1.0] * 4


@pytest.mark.parametrize(("costs", "factor"), [([[0.0, 1.0]], 1.0), ([[np.nan, 1.0]], 1.0), ([[1.0, 1.0]], 0.5)])
def test_costs_are_positive_and_factors_at_least_one(costs: list[list[float]], factor: float) -> None:
    with pytest.raises(InvalidInputError):
        performance_profile(costs, [factor])
