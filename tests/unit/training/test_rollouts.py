"""Rollouts of any length are stacked into one array; missing answers are zero and flagged."""

from speciate.training.rollouts import stack_rollouts


def test_missing_answers_are_zero_and_flagged():
    rewards, answered = stack_rollouts([[[0.1, 0.2], [0.3, 0.4]], [], [[0.5, 0.6]]], answers=2, dimensions=2)
    assert rewards.tolist() == [[[0.1, 0.2], [0.3, 0.4]], [[0, 0], [0, 0]], [[0.5, 0.6], [0, 0]]]
    assert answered.tolist() == [[True, True], [False, False], [True, False]]


def test_answers_beyond_m_are_dropped():
    assert stack_rollouts([[[1.0], [0.5], [0.2]]], answers=2, dimensions=1)[0].tolist() == [[[1.0], [0.5]]]
