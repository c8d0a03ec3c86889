"""Rollouts of any length are stacked into one array; missing answers are zero and flagged."""

import numpy as np
import pytest

from speciate.training.rollouts import measure, stack_rollouts


def test_missing_answers_are_zero_and_flagged():
    rewards, answered = stack_rollouts([[[0.1, 0.2], [0.3, 0.4]], [], [[0.5, 0.6]]], answers=2, dimensions=2)
    assert rewards.tolist() == [[[0.1, 0.2], [0.3, 0.4]], [[0, 0], [0, 0]], [[0.5, 0.6], [0, 0]]]
    assert answered.tolist() == [[True, True], [False, False], [True, False]]


def test_answers_beyond_m_are_dropped():
    assert stack_rollouts([[[1.0], [0.5], [0.2]]], answers=2, dimensions=1)[0].tolist() == [[[1.0], [0.5]]]


def test_missing_answers_count_as_no_reward_but_neither_as_diversity_nor_as_correlation():
    rewards, answered = stack_rollouts([[[0.9, 0.4]], [[0.8, 0.5], [0.9, 0.4]], [], []], answers=2, dimensions=2)
    measured = measure(rewards, answered, np.ones(4, np.bool_), 2, np.random.default_rng(0))
    assert measured["diversity"] == pytest.approx(0.4 / 3), (
        "two of three pairs differ by 0.2; the second prompt has none"
    )
    assert measured["correlation"] == pytest.approx(-1)
    assert measured["answered"] == 3 / 8
    assert measured["best"] == pytest.approx(0.65 / 2)
    nothing = measure(rewards[2:], answered[2:], np.ones(2, np.bool_), 2, np.random.default_rng(0))
    assert nothing["diversity"] == nothing["correlation"] == 0.0
