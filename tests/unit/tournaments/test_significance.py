"""Paired tests against enumeration, textbook values and their level in simulated tournaments."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy import stats

from speciate.tournaments.statistics.significance import McNemar, SignFlip, holm, mcnemar, sign_flips
from tests.unit.tournaments.simulated import tournament


def rng() -> np.random.Generator:
    return np.random.default_rng(20)


def sign_flip(differences: ArrayLike, rng: np.random.Generator, draws: int = 20_000) -> SignFlip:
    return sign_flips([differences], rng, draws)[0]


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=7))
def test_sign_flip_enumerates_every_pattern_of_few_problems(eighths: list[int]) -> None:
    differences = np.array(eighths) / 8
    patterns = itertools.product((-1, 1), repeat=len(eighths))
    sums = [abs(sum(sign * abs(x) for sign, x in zip(signs, eighths, strict=True))) for signs in patterns]
    seen = sign_flip(differences, rng())
    assert seen.exact
    assert seen.p_value == pytest.approx(np.mean([total >= abs(sum(eighths)) for total in sums]), abs=1e-12)
    assert seen.difference == pytest.approx(np.mean(differences))


def test_sign_flip_matches_fishers_example() -> None:
    # Darwin's maize, Fisher 1935, section 21: 1726 of 32768 patterns have a sum of at least 314 either way.
    darwin = [49, -67, 8, 16, 6, 23, 28, 41, 14, 29, 56, 24, 75, 60, -48]
    seen = sign_flip(darwin, rng(), draws=200_000)
    assert not seen.exact
    assert seen.p_value == pytest.approx(1726 / 32768, abs=0.002)
    assert sign_flip([*darwin[:14], 0.0], rng()).exact


def test_sign_flip_counts_sums_that_differ_by_rounding_as_equal() -> None:
    assert sign_flip([0.1, 0.2, -0.3], rng()).p_value == 1.0
    assert sign_flip(np.zeros(50), rng()).p_value == 1.0


def test_sign_flip_draws_from_its_rng_alone() -> None:
    differences = np.random.default_rng(0).normal(size=30)
    assert sign_flip(differences, rng()) == sign_flip(differences, rng())


def test_a_p_value_of_drawn_patterns_counts_the_observed_one() -> None:
    # Chance to draw one as extreme: 9 in half a million.
    assert sign_flip(np.ones(20), np.random.default_rng(0), draws=9).p_value == 0.1


def test_mcnemar_shows_its_table() -> None:
    a = [True] * 6 + [True] * 5 + [False] * 1 + [False] * 3
    b = [True] * 6 + [False] * 5 + [True] * 1 + [False] * 3
    assert mcnemar(a, b) == McNemar(both=6, only_a=5, only_b=1, neither=3, p_value=pytest.approx(14 / 64))  # type: ignore[arg-type]


@given(st.integers(0, 30), st.integers(0, 30))
def test_mcnemar_is_the_two_sided_binomial_test(only_a: int, only_b: int) -> None:
    a, b = [1] * only_a + [0] * only_b + [1], [0] * only_a + [1] * only_b + [1]
    expected = stats.binomtest(only_a, only_a + only_b, 0.5).pvalue if only_a + only_b else 1.0
    assert mcnemar(a, b).p_value == pytest.approx(expected, abs=1e-12)


def test_mcnemar_over_seeds_pools_the_pairs() -> None:
    a, b = np.array([[1, 1, 0], [1, 0, 0]]), np.array([[0, 1, 0], [0, 0, 1]])
    seen = mcnemar(a, b)
    assert (seen.both, seen.only_a, seen.only_b, seen.neither) == (1, 2, 1, 2)
    assert seen.p_value == 1.0


def test_holm_matches_the_textbook() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == pytest.approx([1.0, 1.0])


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_keeps_the_order_and_lies_between_raw_and_bonferroni(p_values: list[float]) -> None:
    raw, adjusted = np.array(p_values), holm(p_values)
    assert (adjusted >= raw).all()
    assert (adjusted <= np.minimum(1, raw * len(raw)) + 1e-15).all()
    assert (np.diff(adjusted[np.argsort(raw, kind="stable")]) >= 0).all()


def rejections(shift: float, spread: float, times: int) -> tuple[float, float, float]:
    """Return the rejection rates at 5 % of sign flips, McNemar on the sets and McNemar over seeds."""
    source = np.random.default_rng(1)
    seen = np.zeros(3)
    for _ in range(times):
        a, b = tournament(source, shift, spread)
        flips = sign_flip(a.mean(axis=1) - b.mean(axis=1), source, draws=400)
        p = (flips.p_value, mcnemar(a.any(axis=1), b.any(axis=1)).p_value, mcnemar(a, b).p_value)
        seen += np.array(p) <= 0.05
    flip_share, set_share, pooled_share = seen / times
    return flip_share, set_share, pooled_share


def test_all_three_hold_their_level_when_the_policies_are_equal() -> None:
    assert max(rejections(shift=0.0, spread=0.0, times=600)) <= 0.07  # 0.05 and two standard errors


def test_a_real_effect_shows_in_solve_rates_and_hardly_in_unlock_sets() -> None:
    flips, sets, pooled = rejections(shift=0.5, spread=0.0, times=150)
    assert flips >= 0.6
    assert pooled >= 0.6
    assert sets <= 0.15


def test_pooling_seeds_rejects_too_often_when_each_is_better_on_half_of_the_problems() -> None:
    flips, _, pooled = rejections(shift=0.0, spread=2.0, times=300)
    assert flips <= 0.08
    assert pooled >= 0.15
