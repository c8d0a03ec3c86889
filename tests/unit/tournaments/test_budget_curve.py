"""The law of diminishing returns: recovery, intervals and refused inputs."""

from __future__ import annotations

import numpy as np
import pytest

from speciate.tournaments.statistics.budget_curve import DECAYS, fit_budget_curve

BUDGETS = np.array([1, 2, 4, 8, 16, 32])


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def law(start: float, gain: float, decay: float, at: np.ndarray) -> np.ndarray:
    return start + gain * (np.log(at) if decay == 0 else (1 - at**-decay) / decay)


@pytest.mark.parametrize("decay", [0.0, DECAYS[20], DECAYS[40], DECAYS[55]])
def test_a_law_without_noise_is_recovered(decay: float) -> None:
    curves = np.tile(law(0.2, 0.1, decay, BUDGETS), (30, 1))
    seen = fit_budget_curve(curves, BUDGETS, [32, 128, 1024], rng(), draws=20)
    expected = law(0.2, 0.1, decay, np.array([32, 128, 1024]))
    assert seen.predicted == pytest.approx(expected, abs=1e-9)
    assert seen.worst_residual < 1e-12


def test_budgets_are_measured_from_the_first() -> None:
    curves = np.tile(law(0.2, 0.1, DECAYS[30], BUDGETS), (30, 1))
    seen = fit_budget_curve(curves, 100 * BUDGETS, [12_800], rng(), draws=20)
    assert seen.predicted == pytest.approx(law(0.2, 0.1, DECAYS[30], np.array([128])), abs=1e-9)


def test_the_interval_covers_the_truth_beyond_the_data_and_widens() -> None:
    source, held, times = np.random.default_rng(1), 0, 200
    truth = law(0.2, 0.1, DECAYS[35], np.array([256.0]))[0]
    for _ in range(times):
        starts, gains = source.normal(0.2, 0.1, (40, 1)), source.exponential(0.1, (40, 1))
        curves = law(0.0, 1.0, DECAYS[35], BUDGETS) * gains + starts + source.normal(0, 0.02, (40, len(BUDGETS)))
        seen = fit_budget_curve(curves, BUDGETS, [32, 256], source, draws=200)
        held += bool(seen.low[1] <= truth <= seen.high[1])
        assert (seen.low <= seen.high).all()
    assert 0.88 <= held / times <= 0.99
    assert seen.high[1] - seen.low[1] > seen.high[0] - seen.low[0]


def test_a_flat_or_falling_curve_predicts_its_mean() -> None:
    falling = np.tile(np.linspace(0.5, 0.4, len(BUDGETS)), (30, 1))
    seen = fit_budget_curve(falling, BUDGETS, [1000], rng(), draws=20)
    assert seen.predicted == pytest.approx([0.45])


def test_no_prediction_exceeds_the_largest_score() -> None:
    curves = np.array([law(0.5 + 0.001 * i, 0.1, 0.0, BUDGETS) for i in range(30)])
    seen = fit_budget_curve(curves, BUDGETS, [1e9], rng(), largest=1.0, draws=20)
    assert (seen.predicted[0], seen.high[0]) == (1.0, 1.0)


def test_equal_curves_give_no_interval() -> None:
    for curve in (np.zeros(len(BUDGETS)), law(0.1, 0.1, 0.3, BUDGETS)):
        seen = fit_budget_curve(np.tile(curve, (40, 1)), BUDGETS, [32], rng(), draws=20)
        assert np.isfinite(seen.predicted).all()
        assert np.isnan([seen.low, seen.high]).all()


def test_a_law_that_does_not_hold_shows_in_the_residual() -> None:
    jump = np.tile((BUDGETS >= 16).astype(float), (30, 1))
    assert fit_budget_curve(jump, BUDGETS, [32], rng(), draws=20).worst_residual > 0.2
