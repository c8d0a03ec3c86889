"""Running time until a target, with runs that end before they reach it: ECDF and performance profiles."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.arrays import FloatArray


@dataclass(frozen=True, eq=False, slots=True)
class Ecdf:
    """Share of (problem, target) pairs reached, by cost."""

    spent: FloatArray
    """Positions of the curve's steps, ascending and distinct."""
    share: FloatArray
    """Share of all pairs reached at or before each step, same shape."""
    censored: FloatArray
    """Costs of runs that ended without reaching their target, ascending."""
    sound_until: float
    """The first censored cost, infinite if there is none. Beyond it the curve is a lower bound, because the censored
    run might have reached its target."""
    pairs: int


def ecdf(spent: ArrayLike, reached: ArrayLike) -> Ecdf:
    """Return the empirical distribution of costs to target over all pairs, including those that were never reached.

    ``spent`` are evaluations (or tokens) until the pair's target was reached, or until its run ended. Source: Hansen et
    al. 2021, arXiv 1603.08785, section 4.3 (runtime distributions).
    """
    costs, success = np.asarray(spent, dtype=np.float64), np.asarray(reached, dtype=np.bool_)
    steps, times = np.unique(costs[success], return_counts=True)
    censored = np.sort(costs[~success])
    return Ecdf(
        steps,
        np.cumsum(times) / success.size,
        censored,
        float(censored[0]) if len(censored) else math.inf,
        success.size,
    )


def performance_profile(costs: ArrayLike, factors: ArrayLike) -> FloatArray:
    """Return ρ_s(τ), the share of problems that policy s solves at no more than τ times the cost of the best policy.

    ρ_s(1) is the share of problems on which s is best or tied, ρ_s(∞) the share that it solves at all. An unsolved
    problem counts as a miss for every policy. With more than two policies a profile depends on the other policies
    (Gould and Scott 2016): derive ranks from pairs. Source: Dolan and Moré 2002.

    Costs (n_problems, n_policies) are positive, such as ERT in evaluations, infinite for unsolved problems; factors are
    τ ≥ 1. The result has shape (n_policies, n_factors).
    """
    spent, taus = np.asarray(costs, dtype=np.float64), np.asarray(factors, dtype=np.float64)
    best = spent.min(axis=1, keepdims=True)
    ratios = np.divide(spent, best, out=np.full_like(spent, np.inf), where=np.isfinite(spent))
    profile: FloatArray = (ratios[:, :, None] <= taus).mean(axis=0)
    return profile
