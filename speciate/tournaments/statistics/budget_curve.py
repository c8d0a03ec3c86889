"""Fit a law of diminishing returns to best@k over budgets, and extrapolate it with an interval."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.arrays import FloatArray
from speciate.tournaments.statistics.bootstrap import all_equal, percentiles, resample_counts

DECAYS = np.concatenate([[0.0], np.geomspace(0.02, 4.0, 60)])
"""Candidate values of β. The law is linear given β, so the fit is a grid search without start values."""


@dataclass(frozen=True, eq=False, slots=True)
class BudgetCurve:
    """The fitted law b(k) = start + gain · (1 − (k/k₀)^−β) / β, where k₀ is the smallest budget.

    ``gain``, per factor e of budget at k₀, is never negative; β = 0 is a gain that never slows down, log(k/k₀).
    """

    worst_residual: float
    """Largest |mean − law| at the measured budgets; large if the law does not hold."""
    predicted: FloatArray
    """The law at the further budgets, shape (n_at,)."""
    low: FloatArray
    """Lower end of the interval; NaN if the curves of all problems are equal."""
    high: FloatArray


def fit_budget_curve(
    curves: ArrayLike,
    budgets: ArrayLike,
    at: ArrayLike,
    rng: np.random.Generator,
    largest: float = np.inf,
    draws: int = 1000,
) -> BudgetCurve:
    """Fit the law to the mean over problems by least squares, with an interval from resampled problems.

    A power law with a ceiling, as in scaling laws, in the form of Box and Cox (1964): growth without ceiling is the
    limit β = 0. The interval covers the choice of problems *if the law holds*. It does not cover the assumption that
    the law holds beyond the measured budgets.

    ``curves`` (n_problems, n_budgets) hold best@k of each problem, higher is better, at ascending ``budgets``, at least
    4 and evenly spaced in log k for the best fit. Predictions ``at`` further budgets are clipped at ``largest``.
    """
    means_of, ks, points = (np.asarray(each, dtype=np.float64) for each in (curves, budgets, at))
    problems = len(means_of)
    counts = resample_counts(problems, draws, rng)
    samples = np.concatenate([means_of.mean(axis=0, keepdims=True), counts @ means_of / problems])
    starts, gains, decays = _fits(samples, ks / ks[0])
    predicted = np.minimum(starts[:, None] + gains[:, None] * _growth(decays, points / ks[0]), largest)
    low, high = percentiles(predicted[1:], 0.95)
    if all_equal(means_of):
        low, high = np.full_like(low, np.nan), np.full_like(high, np.nan)
    fitted = starts[0] + gains[0] * _growth(decays[:1], ks / ks[0])[0]
    return BudgetCurve(float(np.abs(samples[0] - fitted).max()), predicted[0], low, high)


def _growth(decays: FloatArray, ratios: FloatArray) -> FloatArray:
    """Return (1 − x^−β) / β, shape (n_decays, n_ratios); log x at β = 0."""
    logs, betas = np.log(ratios)[None], decays[:, None]
    growth: FloatArray = np.where(betas > 0, -np.expm1(-betas * logs) / np.where(betas > 0, betas, 1.0), logs)
    return growth


def _fits(means: FloatArray, ratios: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return start, gain and decay of the least-squares fit of every row of means, shape (n_samples, n_budgets)."""
    growth = _growth(DECAYS, ratios)
    centred = growth - growth.mean(axis=1, keepdims=True)
    power = (centred**2).sum(axis=1)
    gains = np.maximum(means @ centred.T / power, 0.0)
    best = (gains**2 * power).argmax(axis=1)  # reduction of the squared residuals
    gain = gains[np.arange(len(means)), best]
    starts = means.mean(axis=1) - gain * growth.mean(axis=1)[best]
    return starts, gain, DECAYS[best]
