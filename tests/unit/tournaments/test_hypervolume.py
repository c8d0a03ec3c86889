"""Hypervolumes against inclusion and exclusion."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speciate.tournaments.statistics.hypervolume import hypervolume_curve


def brute(points: np.ndarray) -> float:
    """Return the volume of the union of boxes [0, p] by inclusion and exclusion."""
    total = 0.0
    for size in range(1, len(points) + 1):
        for chosen in itertools.combinations(points, size):
            total -= (-1) ** size * np.prod(np.maximum(np.min(chosen, axis=0), 0.0))
    return total


def volume(points: np.ndarray) -> float:
    return float(hypervolume_curve(points, [len(points)])[0])


@pytest.mark.parametrize("d", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("seed", range(4))
def test_volume(d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for points in (rng.random((8, d)), rng.integers(-1, 4, (8, d)) / 3, 0.02 * rng.random((6, d))):
        assert volume(points) == pytest.approx(brute(points), abs=1e-12 if d <= 2 else 0.01 * points.max() ** d)


def test_a_single_box_is_its_volume_in_any_dimension() -> None:
    assert volume(np.full((1, 6), 0.5)) == pytest.approx(0.5**6)


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 2), min_size=1, max_size=6), st.tuples(*[st.integers(0, 5)] * 2))
def test_another_point_never_reduces_the_volume(points: list[tuple[int, ...]], more: tuple[int, ...]) -> None:
    before, after = volume(np.array(points) / 5), volume(np.array([*points, more]) / 5)
    assert before <= after <= before + np.prod(more) / 25 + 1e-12


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_a_curve_has_the_hypervolume_of_every_beginning(d: int) -> None:
    points = np.random.default_rng(d).normal(0.4, 0.3, (300, d))
    ends = [1, 2, 10, 11, 300]
    curve = hypervolume_curve(points, ends)
    exact = [brute(np.minimum(points[:end], 1.0)) for end in ends[:-1]]
    assert curve[:-1].tolist() == pytest.approx(exact, abs=1e-12 if d <= 2 else 3e-3)
    assert (np.diff(curve) >= 0).all()


def test_a_curve_of_nothing_and_of_points_outside() -> None:
    assert hypervolume_curve([[-1.0, 2.0, 2.0], [0.0, 1.0, 1.0], [1e308, np.inf, 9.0]], [1, 2, 3]).tolist() == [0, 0, 1]
