"""Selection operators against plain loops and known distributions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from speciate.domain.arrays import FloatArray
from speciate.domain.reward import pareto_front
from speciate.search.selection import (
    SELECTIONS,
    best_weighted,
    deviations,
    epsilon_lexicase,
    lexicase,
    pareto_tournament,
    softmax,
)

DRAWS = 4000
EVEN = np.full(3, 1 / 3)


def exact_lexicase(points: FloatArray, epsilon: FloatArray) -> FloatArray:
    """Return each row's probability by enumerating the orders of the objectives, as in the textbook."""
    chances = np.zeros(len(points))
    orders = list(itertools.permutations(range(points.shape[1])))
    for order in orders:
        pool = list(range(len(points)))
        for j in order:
            best = max(points[i, j] for i in pool)
            pool = [i for i in pool if points[i, j] >= best - epsilon[j]]
        for i in pool:
            chances[i] += 1 / len(pool) / len(orders)
    return chances


def frequencies(name: str, points: FloatArray, weights: FloatArray = EVEN) -> FloatArray:
    rng = np.random.default_rng(7)
    chosen = [SELECTIONS[name](points, rng, weights) for _ in range(DRAWS)]
    return np.bincount(chosen, minlength=len(points)) / DRAWS


def assert_close(seen: FloatArray, expected: FloatArray) -> None:
    # Five standard errors of a binomial share; rows without a chance must never be drawn.
    assert np.all(np.abs(seen - expected) <= 5 * np.sqrt(expected * (1 - expected) / DRAWS) + 1e-12)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("levels", [2, 4, 1000])
def test_lexicase_has_the_textbook_distribution(seed: int, levels: int) -> None:
    points = np.random.default_rng(seed).integers(levels, size=(9, 5)) / levels
    assert_close(frequencies("lexicase", points), exact_lexicase(points, np.zeros(5)))
    assert_close(frequencies("epsilon_lexicase", points), exact_lexicase(points, deviations(points)))


def test_lexicase_selects_a_specialist_that_no_sum_selects() -> None:
    points = np.array([[1.0, 0.0, 0.0], [0.6, 0.6, 0.6], [0.0, 0.9, 0.0], [0.2, 0.1, 0.8]])
    assert np.all(frequencies("lexicase", points)[[0, 2, 3]] > 0.2)
    assert frequencies("best_weighted", points)[1] == 1.0


def test_three_hundred_equal_objectives_end_the_filtering_at_once() -> None:
    points = np.ones((50, 300))
    chosen = {epsilon_lexicase(points, np.random.default_rng(i), points[0]) for i in range(200)}
    assert len(chosen) > 40


def test_random_scalarization_chooses_by_the_volume_of_weights() -> None:
    # Under w ~ Dir(1) on two objectives, [1, 0] is best for w0 > 0.6, [0, 1] for w0 < 0.4, and 0.6 twice in between.
    points = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.6], [0.59, 0.6]])
    assert_close(frequencies("random_scalarization", points), np.array([0.4, 0.4, 0.2, 0.0]))


def test_best_weighted_is_greedy_and_fair_to_equals() -> None:
    points = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    assert_close(frequencies("best_weighted", points, np.array([0.9, 0.1])), np.array([0.5, 0.0, 0.5]))


def test_softmax_has_boltzmanns_distribution() -> None:
    points, weights = np.array([[0.0, 1.0], [0.1, 1.0], [0.3, 0.0]]), np.array([1.0, 0.0])
    chances = np.exp(np.array([0.0, 1.0, 3.0]))
    assert_close(frequencies("softmax", points, weights), chances / chances.sum())
    assert softmax(points * 1e9, np.random.default_rng(0), weights) == 2


def test_curiosity_prefers_newer_elites_by_rank() -> None:
    points = np.array([[0.9], [0.1], [0.5], [0.2]])
    assert_close(frequencies("curiosity", points), np.array([1 / 4, 1 / 3, 1 / 2, 1.0]) / (25 / 12))


def test_a_tournament_of_all_chooses_from_the_front() -> None:
    points = np.random.default_rng(2).random((12, 2))
    front = set(np.flatnonzero(pareto_front(points)).tolist())
    rng = np.random.default_rng(0)
    assert {pareto_tournament(points, rng, EVEN, size=99) for _ in range(300)} == front


def test_a_small_tournament_may_select_a_dominated_row_but_not_the_worst() -> None:
    points = np.arange(6.0)[:, None]
    seen = frequencies("pareto_tournament", points)
    assert seen[0] == seen[1] == seen[2] == 0.0  # at least three of six stand above in any tournament of four
    assert_close(seen[3:], np.array([1, 4, 10]) / 15)


@pytest.mark.parametrize("name", SELECTIONS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 300), (7, 1), (40, 300)])
def test_every_operator_takes_every_shape(name: str, shape: tuple[int, int]) -> None:
    points = np.random.default_rng(0).random(shape)
    weights = np.full(shape[1], 1 / shape[1])
    before = points.copy()
    first, second = (SELECTIONS[name](points, np.random.default_rng(5), weights) for _ in range(2))
    assert first == second
    assert type(first) is int
    assert 0 <= first < shape[0]
    assert np.array_equal(points, before)


@pytest.mark.parametrize("operator", [lexicase, best_weighted])
def test_a_row_that_is_best_everywhere_is_selected(operator: object) -> None:
    points = np.array([[0.1, 0.2], [0.9, 0.9], [0.3, 0.1]])
    assert callable(operator)
    assert {operator(points, np.random.default_rng(i), np.array([0.5, 0.5])) for i in range(50)} == {1}
