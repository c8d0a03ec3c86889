"""Rank policies on one scale: the Bradley–Terry model with Davidson's ties.

Useful with four or more policies, or if not every pair met (``applies``); for two policies a table says as much.
scipy is imported inside the functions because every process loads this module and few of them rank policies.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.arrays import FloatArray

_MIN_POLICIES = 4
_STEPS = 100
_ROUNDING = 1e-11  # relative rounding error of the log posterior, which is negative
_CONVERGED = 1e-12  # squared length of a step in standard errors


@dataclass(frozen=True, eq=False, slots=True)
class Strengths:
    """Fitted strengths of m policies, log scale, mean 0; higher is better."""

    strength: FloatArray
    """θ, shape (m,); e^(θ_i − θ_j) are the odds of i against j if they do not tie."""
    low: FloatArray
    high: FloatArray
    log_tie: float
    """η: two equal policies tie with odds e^η against one of them winning; −∞ without any tie."""


def pairwise_outcomes(scores: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return wins and ties, shape (n_problems, m, m): the number of seeds on which i beat j, and on which they tied.

    Scores have shape (n_problems, n_seeds, m), higher is better, NaN for a policy that did not run.
    """
    table = np.asarray(scores, dtype=np.float64)
    wins = (table[..., :, None] > table[..., None, :]).sum(axis=1).astype(np.float64)
    ties = (table[..., :, None] == table[..., None, :]).sum(axis=1).astype(np.float64)
    m = table.shape[-1]
    ties[:, np.arange(m), np.arange(m)] = 0.0
    return wins, ties


def applies(wins: FloatArray, ties: FloatArray) -> bool:
    """Return True if strengths add to the table of pairs: four or more policies, or pairs that never met."""
    met = (wins + np.swapaxes(wins, 1, 2) + ties).sum(axis=0) > 0
    m = len(met)
    return m >= _MIN_POLICIES or bool((met.sum() < m * (m - 1)) and m > 2)


def bradley_terry(wins: ArrayLike, ties: ArrayLike, prior_sd: float = 3.0, level: float = 0.95) -> Strengths:
    """Fit P(i beats j) : P(j beats i) : P(tie) = e^θ_i : e^θ_j : e^(η + (θ_i + θ_j)/2).

    Newton's method on the concave log posterior with θ, η ~ N(0, prior_sd²): without a prior, a policy that won or lost
    every comparison would have no finite strength. Intervals are θ ± z·se with the larger of two standard errors: the
    model's own, and the sandwich clustered by problem, because comparisons on one problem are dependent. Sources:
    Bradley and Terry 1952; Davidson 1970; sandwich: Liang and Zeger 1986. ``wins`` of i over j on each problem and
    ``ties`` have shape (n_problems, m, m); ``prior_sd`` is in logits.
    """
    from scipy import special

    beaten, tied = np.asarray(wins, dtype=np.float64), np.asarray(ties, dtype=np.float64)
    m, has_ties = beaten.shape[1], bool(tied.any())
    features, counts = _outcomes(beaten, tied)
    if not has_ties:
        features, counts = features[:, :2, :m], counts[:, :, :2]
    precision = prior_sd**-2 * np.eye(features.shape[2])
    theta = _newton(features, counts, precision)
    scores, information = _derivatives(theta, features, counts)
    model = np.linalg.inv(information + precision)
    n = len(scores)
    correction = n / (n - 1) if n > 1 else 1.0
    sandwich = correction * model @ (scores.T @ scores) @ model
    centre = np.eye(m) - 1.0 / m  # remove the variance of the mean strength, which only the prior determines
    spread = [np.diag(centre @ covariance[:m, :m] @ centre) for covariance in (model, sandwich)]
    reach = special.ndtri((1 + level) / 2) * np.sqrt(np.maximum(*spread))
    strength = theta[:m] - theta[:m].mean()
    return Strengths(strength, strength - reach, strength + reach, float(theta[m]) if has_ties else -np.inf)


def _outcomes(wins: FloatArray, ties: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return features (n_pairs, 3, m + 1) and counts (n_problems, n_pairs, 3) of i wins, j wins, tie for i < j."""
    m = wins.shape[1]
    first, second = np.triu_indices(m, 1)
    pairs = np.arange(len(first))
    features = np.zeros((len(pairs), 3, m + 1))
    features[pairs, 0, first] = features[pairs, 1, second] = 1.0
    features[pairs, 2, first] = features[pairs, 2, second] = 0.5
    features[:, 2, m] = 1.0
    return features, np.stack([wins[:, first, second], wins[:, second, first], ties[:, first, second]], axis=2)


def _newton(features: FloatArray, counts: FloatArray, precision: FloatArray) -> FloatArray:
    theta = np.zeros(features.shape[2])
    value = _log_posterior(theta, features, counts, precision)
    for _ in range(_STEPS):
        scores, information = _derivatives(theta, features, counts)
        slope = scores.sum(axis=0) - precision @ theta
        step = np.linalg.solve(information + precision, slope)
        if slope @ step < _CONVERGED:
            return theta + step
        # Halve overshooting first steps, which occur if nearly all outcomes are equal.
        while (ahead := _log_posterior(theta + step, features, counts, precision)) < value - _ROUNDING * (1 - value):
            step = step / 2
        theta, value = theta + step, ahead
    return theta


def _log_posterior(theta: FloatArray, features: FloatArray, counts: FloatArray, precision: FloatArray) -> float:
    from scipy import special

    logits = features @ theta
    log_chances = logits - special.logsumexp(logits, axis=1, keepdims=True)
    return float((counts.sum(axis=0) * log_chances).sum() - 0.5 * theta @ precision @ theta)


def _derivatives(theta: FloatArray, features: FloatArray, counts: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the score of each problem, (n_problems, m + 1), and the total information, (m + 1, m + 1)."""
    from scipy import special

    chances = special.softmax(features @ theta, axis=1)
    met = counts.sum(axis=2)
    surprise = counts - met[:, :, None] * chances
    scores = np.einsum("npo,pof->nf", surprise, features)
    centred = features - np.einsum("po,pof->pf", chances, features)[:, None]
    information = np.einsum("po,pof,pog->fg", met.sum(axis=0)[:, None] * chances, centred, centred)
    return scores, information
