"""Estimators against enumeration of all subsets, known values, and properties."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speciate.tournaments.statistics.estimators import best_at_k, chance_of_better, diversity, pass_at_k

SCORES = st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=30)


def brute_best(scores: list[float], k: int) -> float:
    subsets = list(itertools.combinations(scores, k))
    return math.fsum(max(subset) for subset in subsets) / len(subsets)


def test_pass_at_k_is_the_share_of_subsets_with_a_success() -> None:
    for n in range(1, 9):
        for c in range(n + 1):
            for k in range(1, n + 1):
                samples = [True] * c + [False] * (n - c)
                subsets = [any(subset) for subset in itertools.combinations(samples, k)]
                assert float(pass_at_k(n, c, k)) == pytest.approx(sum(subsets) / len(subsets), abs=1e-12)


def test_pass_at_k_is_precise_for_large_and_tiny_probabilities() -> None:
    for n, c, k in ((10_000, 3, 7), (100_000, 1, 1), (10_000, 900, 50), (5000, 4999, 1)):
        exact = 1 - Fraction(math.comb(n - c, k), math.comb(n, k))
        assert float(pass_at_k(n, c, k)) == pytest.approx(float(exact), rel=1e-12)


def test_pass_at_k_broadcasts_over_problems_and_budgets() -> None:
    n, c, ks = np.array([10, 20, 30]), np.array([0, 5, 30]), [1, 4, 10]
    table = pass_at_k(n[:, None], c[:, None], ks)
    assert table.shape == (3, 3)
    assert table[0].tolist() == [0.0, 0.0, 0.0]
    assert table[2].tolist() == [1.0, 1.0, 1.0]
    assert table[1, 0] == pytest.approx(0.25)
    assert table[1, 1] == float(pass_at_k(20, 5, 4))


@pytest.mark.parametrize("n", range(1, 10))
def test_best_at_k_is_the_mean_over_all_subsets(n: int) -> None:
    scores = np.random.default_rng(n).normal(size=(3, n))
    scores[1] = np.round(scores[1])  # with ties
    table = best_at_k(scores, range(1, n + 1))
    assert table.shape == (3, n)
    for row, k in itertools.product(range(3), range(1, n + 1)):
        assert table[row, k - 1] == pytest.approx(brute_best(scores[row].tolist(), k), abs=1e-12)
        assert best_at_k(scores, k)[row] == pytest.approx(table[row, k - 1], abs=1e-12)


def test_best_at_k_of_many_samples_is_stable() -> None:
    n, k = 3000, 1000
    exact = sum(Fraction(math.comb(i - 1, k - 1) * i, math.comb(n, k)) for i in range(k, n + 1))
    assert float(best_at_k(np.arange(1, n + 1), k)) == pytest.approx(float(exact), rel=1e-12)


@given(SCORES, st.data())
def test_best_at_k_grows_from_the_mean_to_the_maximum(scores: list[float], data: st.DataObject) -> None:
    curve = best_at_k(scores, range(1, len(scores) + 1))
    scale = 1e-12 * max(1.0, np.abs(scores).max())
    assert curve[0] == pytest.approx(np.mean(scores), abs=scale)
    assert curve[-1] == max(scores)
    assert (np.diff(curve) >= -scale).all()
    shuffled = data.draw(st.permutations(scores))
    assert best_at_k(shuffled, len(scores)) == curve[-1]


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_best_at_k_of_successes_is_pass_at_k(successes: list[bool]) -> None:
    n, ks = len(successes), range(1, len(successes) + 1)
    assert best_at_k(successes, ks) == pytest.approx(pass_at_k(n, sum(successes), list(ks)), abs=1e-12)


def test_equal_scores_give_exactly_that_score() -> None:
    assert best_at_k(np.full(30, 0.1), range(1, 31)).tolist() == [0.1] * 30


def test_diversity_is_the_mean_over_pairs_of_all_and_of_valid_samples() -> None:
    rng = np.random.default_rng(1)
    rewards, valid = rng.random((9, 4)), np.arange(9) % 3 != 0
    rewards[~valid] = 0.0

    def brute(points: np.ndarray) -> float:
        return float(np.mean([np.abs(p - q).sum() for p, q in itertools.combinations(points, 2)]))

    assert diversity(rewards, valid) == pytest.approx((brute(rewards), brute(rewards[valid])), abs=1e-12)


def test_frequent_failure_looks_like_diversity_in_one_number_only() -> None:
    seen = diversity([[1.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.0, 0.0]], [True, True, False, False])
    assert seen == pytest.approx((4 / 3, 0.0))


def test_one_sample_has_no_diversity() -> None:
    assert diversity([[1.0, 0.0]], [True]) == pytest.approx((np.nan, np.nan), nan_ok=True)
    assert diversity([[1.0], [0.0]], [True, False]) == pytest.approx((1.0, np.nan), nan_ok=True)


def test_chance_of_better_counts_pairs_and_half_of_ties() -> None:
    a, b = np.array([[3.0, 1.0], [0.0, 0.0]]), np.array([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    assert chance_of_better(a, b) == pytest.approx([4.5 / 6, 0.5])


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6), st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_chances_of_both_orders_sum_to_one(a: list[int], b: list[int]) -> None:
    assert chance_of_better([a], [b]) + chance_of_better([b], [a]) == pytest.approx(1.0)
