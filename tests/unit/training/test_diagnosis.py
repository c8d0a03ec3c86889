"""Before a training: do the rewards hold trade-offs?"""

from __future__ import annotations

import numpy as np
import pytest

from speciate.training.diagnosis import RewardDiagnosis


def test_specialists_are_a_gain() -> None:
    specialists = RewardDiagnosis.of([np.eye(3), np.eye(3)])
    assert specialists.trade_offs == specialists.problems == 2
    assert specialists.gain == pytest.approx(11 / 18 - 1 / 3, abs=0.02)  # the mean of the largest of w ~ Dir(1), k = 3
    assert specialists.correlation == pytest.approx(-0.5)
    assert "trade-offs" in specialists.verdict


def test_equal_components_are_collinear() -> None:
    values = np.linspace(0, 1, 5)[:, None]
    diagnosis = RewardDiagnosis.of([np.repeat(values, 4, axis=1), np.zeros((0, 4))])
    assert (diagnosis.correlation, diagnosis.first_component) == (pytest.approx(1), pytest.approx(1))
    assert (diagnosis.problems, diagnosis.trade_offs, diagnosis.gain) == (1, 0, pytest.approx(0, abs=1e-9))
    assert (diagnosis.nothing, diagnosis.everything) == (0.2, 0.2)
    assert "collinear" in diagnosis.verdict
    for same in (np.zeros((3, 2)), np.ones((3, 2))):
        assert "no estimator can learn" in RewardDiagnosis.of([same]).verdict


def test_problems_with_fewer_rewards_are_diagnosed_beside_the_others() -> None:
    two, three = RewardDiagnosis.of([np.eye(2)]), RewardDiagnosis.of([np.eye(3)])
    both = RewardDiagnosis.of([np.eye(3), np.eye(2)])
    assert (both.problems, both.answers, both.trade_offs) == (2, 5, 2)
    assert both.gain == pytest.approx((two.gain + three.gain) / 2)
    assert both.correlation == pytest.approx((-1.0 + 3 * -0.5) / 4)
    assert both.first_component == pytest.approx((1.0 + 1.0) / (1.0 + 2.0))


@pytest.mark.parametrize("vectors", [[], [np.zeros((0, 2))], [np.zeros((4, 2))], [np.zeros((1, 1))]])
def test_nothing_to_learn_from(vectors: list[np.ndarray]) -> None:
    diagnosis = RewardDiagnosis.of(vectors)
    assert diagnosis.correlation is diagnosis.first_component is None
    assert "no estimator can learn" in diagnosis.verdict
    assert len(list(diagnosis.rows())) == 6
