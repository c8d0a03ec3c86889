"""Tests of methods against enumeration, scipy and their level when training runs of equal methods differ."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from speciate.tournaments.statistics.methods import (
    MethodTest,
    compare_methods,
    detectable_difference,
    runs_needed,
    smallest_p,
    too_few_runs,
)
from speciate.tournaments.statistics.significance import sign_flips
from tests.unit.tournaments.simulated import methods

EIGHTHS = st.integers(0, 8)


def solving(a: list[int], b: list[int], *, paired: bool) -> MethodTest:
    """Compare runs that solve so many of 8 problems."""
    solved = [np.arange(8) < np.array(each)[:, None] for each in (a, b)]
    return compare_methods(*solved, np.random.default_rng(0), paired=paired)


def test_many_runs_are_compared_with_few() -> None:
    assert solving([8] * 2, [0] * 130, paired=False).p_value == smallest_p(2, 130, paired=False)


@given(st.lists(st.tuples(EIGHTHS, EIGHTHS), min_size=1, max_size=7))
def test_paired_runs_enumerate_every_exchange_within_seeds(pairs: list[tuple[int, int]]) -> None:
    found = solving([a for a, _ in pairs], [b for _, b in pairs], paired=True)
    exchanged = [
        abs(sum(a - b if kept else b - a for kept, (a, b) in zip(keep, pairs, strict=True)))
        for keep in itertools.product((True, False), repeat=len(pairs))
    ]
    assert found.exact
    assert found.p_value == pytest.approx(np.mean([total >= exchanged[0] for total in exchanged]), abs=1e-12)
    assert found.p_value >= found.smallest_p == 2 / 2 ** len(pairs)
    assert found.difference == pytest.approx(np.mean([a - b for a, b in pairs]) / 8)
    signs = [sum(a > b for a, b in pairs), sum(a == b for a, b in pairs), sum(a < b for a, b in pairs)]
    assert [found.wins, found.ties, found.losses] == signs


@given(st.lists(EIGHTHS, min_size=1, max_size=5), st.lists(EIGHTHS, min_size=1, max_size=5))
def test_unpaired_runs_enumerate_every_assignment_of_labels(a: list[int], b: list[int]) -> None:
    found = solving(a, b, paired=False)
    n, pooled = len(a), [*a, *b]
    distances = [
        abs(len(b) * sum(chosen) - n * (sum(pooled) - sum(chosen))) for chosen in itertools.combinations(pooled, n)
    ]
    assert found.exact
    assert found.p_value == pytest.approx(np.mean([each >= distances[0] for each in distances]), abs=1e-12)
    assert found.p_value >= found.smallest_p - 1e-12
    assert found.wins + found.ties + found.losses == len(a) * len(b)
    assert found.wins - found.losses == sum(np.sign(x - y) for x in a for y in b)


@pytest.mark.parametrize("paired", [True, False])
def test_the_smallest_p_is_reached_by_the_clearest_result(paired: bool) -> None:
    for a, b in [(3, 3), (5, 5), *([] if paired else [(2, 4), (1, 6)])]:
        found = solving([8] * a, [0] * b, paired=paired)
        assert found.p_value == found.smallest_p == smallest_p(a, b, paired=paired)
        assert (found.low, found.high) == (None, None)  # runs that do not vary have no interval


def test_intervals_are_students_and_welchs() -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((6, 20)), rng.random((6, 20))
    x, y = a.mean(axis=1), b.mean(axis=1)
    for paired, expected in [(True, stats.ttest_rel(x, y)), (False, stats.ttest_ind(x, y, equal_var=False))]:
        found = compare_methods(a, b, rng, paired=paired, level=0.9)
        ends = expected.confidence_interval(0.9)
        assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert solving([3], [2], paired=True).low is None


def test_many_runs_are_permuted_at_random() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.random((12, 30)), rng.random((12, 30)) + 0.05
    found = compare_methods(a, b, np.random.default_rng(3), paired=False)
    assert not found.exact
    assert found == compare_methods(a, b, np.random.default_rng(3), paired=False)
    expected = stats.permutation_test(
        (a.mean(axis=1), b.mean(axis=1)), lambda x, y: np.mean(x) - np.mean(y), n_resamples=20_000, rng=rng
    )
    assert found.p_value == pytest.approx(expected.pvalue, abs=0.015)
    clear = compare_methods(a, b + 9, rng, paired=False, draws=99)
    assert clear.p_value == clear.smallest_p == 0.01


@pytest.mark.parametrize("paired", [True, False])
def test_runs_that_hold_nan_are_refused(paired: bool) -> None:
    with pytest.raises(ValueError, match="expected finite numbers"):
        compare_methods([[np.nan, 0.5], [0.5, 0.5]], np.zeros((2, 2)), np.random.default_rng(0), paired=paired)


def test_three_paired_seeds_cannot_show_a_difference() -> None:
    assert solving([8, 8, 8], [0, 1, 2], paired=True).p_value == 0.25
    assert too_few_runs(3, 3, 0.05, paired=True) == (
        "3 paired training seeds cannot show a difference between methods: p is at least 0.25, expected at least 6 of"
        " each method"
    )
    assert too_few_runs(3, 4, 0.05, 2, paired=False).startswith("3 and 4 training runs cannot show a difference")
    assert too_few_runs(6, 6, 0.05, paired=True) == too_few_runs(4, 4, 0.05, paired=False) == ""
    assert [runs_needed(0.05, m, paired=True) for m in (1, 2, 3, 6)] == [6, 7, 7, 8]
    assert [runs_needed(0.05, m, paired=False) for m in (1, 2, 3, 6)] == [4, 5, 5, 5]
    for n, paired in itertools.product(range(1, 12), (True, False)):
        can = smallest_p(n, n, paired=paired) <= 0.05
        assert can == (n >= runs_needed(0.05, paired=paired))
    assert smallest_p(8, 8, paired=False) == 2 / math.comb(16, 8)


@pytest.mark.parametrize(("runs", "paired"), [(8, True), (10, True), (5, False), (8, False)])
def test_the_detectable_difference_is_detected_in_four_of_five(runs: int, paired: bool) -> None:
    rng = np.random.default_rng(runs)
    effect = detectable_difference(runs, runs, 0.05, paired=paired)
    a = rng.normal(effect, 1.0, (300, runs, 1))
    # A partner without noise: the standard deviation of the differences is 1 as well.
    b = np.zeros_like(a) if paired else rng.normal(0.0, 1.0, a.shape)
    found = [compare_methods(x, y, rng, paired=paired, draws=999).p_value for x, y in zip(a, b, strict=True)]
    assert np.mean(np.array(found) <= 0.05) == pytest.approx(0.8, abs=0.08)


@pytest.mark.parametrize("runs", [1_023, 1_060, 1_080, 10_000])
def test_the_difference_that_many_runs_detect_is_that_of_the_normal_distribution(runs: int) -> None:
    normal = stats.norm.ppf(0.975) + stats.norm.ppf(0.8)
    for paired, scale in ((True, 1), (False, 2)):
        found = detectable_difference(runs, runs, 0.05, paired=paired)
        assert found == pytest.approx(normal * math.sqrt(scale / runs), rel=3e-3)


def test_few_runs_detect_nothing() -> None:
    assert detectable_difference(5, 5, 0.05, paired=True) == math.inf
    assert detectable_difference(1, 1, 0.05, paired=False) == math.inf
    assert detectable_difference(1, 30, 0.05, paired=False) > detectable_difference(15, 16, 0.05, paired=False)


def test_equal_methods_are_rejected_by_the_test_of_checkpoints_alone() -> None:
    """The training runs of two equal methods differ by ½ logit; the level of the test of methods holds."""
    rng = np.random.default_rng(4)
    seen = np.zeros(3)
    for _ in range(400):
        a, b = methods(rng, runs=8, noise=0.5)
        (checkpoints,) = sign_flips([(a[0] - b[0])], rng, 400)
        tests = [compare_methods(a, b, rng, paired=paired).p_value for paired in (True, False)]
        seen += np.array([*tests, checkpoints.p_value]) <= 0.05
    paired, unpaired, single = seen / 400
    assert max(paired, unpaired) <= 0.055 + 2 * math.sqrt(0.05 * 0.95 / 400)
    assert single >= 0.25
