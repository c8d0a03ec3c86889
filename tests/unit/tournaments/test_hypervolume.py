"""Hypervolumes against inclusion and exclusion."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speciate.domain.errors import InvalidInputError
from speciate.tournaments.statistics.hypervolume import hypervolume, hypervolume_curve


def brute(points: np.ndarray) -> float:
    """Return the volume of the union of boxes [0, p] by inclusion and exclusion."""
    total = 0.0
    for size in range(1, len(points) + 1):
        for chosen in itertools.combinations(points, size):
            total -= (-1) ** size * np.prod(np.maximum(np.min(chosen, axis=0), 0.0))
    return total


@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_exact_up_to_four_dimensions(d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for points in (rng.random((8, d)), rng.integers(-1, 4, (8, d)) / 3):
        seen = hypervolume(points, np.zeros(d))
        assert seen == pytest.approx(brute(points), abs=1e-12)


@pytest.mark.parametrize("d", [5, 7])
def test_sampled_beyond_four_dimensions(d: int) -> None:
    rng = np.random.default_rng(d)
    points = 0.5 + rng.random((6, d)) / 2
    seen = hypervolume(points, np.zeros(d), rng)
    assert seen == pytest.approx(brute(points), abs=0.01)
    assert hypervolume(points, np.zeros(d), np.random.default_rng(1)) == hypervolume(
        points, np.zeros(d), np.random.default_rng(1)
    )
    with pytest.raises(InvalidInputError, match="rng"):
        hypervolume(points, np.zeros(d))


def test_a_single_box_is_its_volume_in_any_dimension() -> None:
    seen = hypervolume(np.full((1, 6), 0.5), np.zeros(6), np.random.default_rng(0), draws=100)
    assert seen == pytest.approx(0.5**6)


def test_points_that_do_not_exceed_the_reference_add_nothing() -> None:
    assert hypervolume([[2.0, 0.0], [-1.0, 9.0]], [0.0, 0.0]) == 0.0
    assert hypervolume(-np.ones((2, 5)), np.zeros(5), np.random.default_rng(0)) == 0.0
    assert hypervolume([[2.0, 3.0]], [1.0, 1.0]) == 2.0


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=6), st.tuples(*[st.integers(0, 5)] * 3))
def test_another_point_never_reduces_the_volume(points: list[tuple[int, ...]], more: tuple[int, ...]) -> None:
    before, after = hypervolume(points, [0, 0, 0]), hypervolume([*points, more], [0, 0, 0])
    assert before <= after <= before + np.prod(more)


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_a_curve_has_the_hypervolume_of_every_beginning(d: int) -> None:
    rng = np.random.default_rng(d)
    points = rng.normal(0.4, 0.3, (300, d))
    ends = [1, 2, 50, 51, 300]
    curve = hypervolume_curve(points, ends)
    exact = [hypervolume(np.minimum(points[:end], 1.0), np.zeros(d)) for end in ends]
    assert curve.tolist() == pytest.approx(exact, abs=1e-12 if d <= 2 else 3e-3)
    assert (np.diff(curve) >= 0).all()


def test_a_curve_of_nothing_and_of_points_outside() -> None:
    assert hypervolume_curve([[-1.0, 2.0, 2.0], [0.0, 1.0, 1.0], [1e308, np.inf, 9.0]], [1, 2, 3]).tolist() == [0, 0, 1]
