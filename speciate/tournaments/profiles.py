"""Performance profiles: on which share of problems a policy is within a factor of the best one. Higher is better."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.errors import InvalidInputError
from speciate.tournaments.arrays import FloatArray, finite, shaped


def performance_profile(costs: ArrayLike, factors: ArrayLike) -> FloatArray:
    """Return ρ_s(τ), the share of problems that policy s solves at no more than τ times the cost of the best policy.

    ρ_s(1) is how often s is (one of) the best, ρ_s(∞) how much it solves at all; a problem that nobody solves counts as
    a miss for all. Profiles of more than two policies depend on which others take part (Gould and Scott 2016): read
    ranks off pairs. Source: Dolan and Moré 2002.

    Args:
        costs: Shape (n_problems, n_policies), positive, such as ERT in evaluations; infinite where it was not solved.
        factors: Shape (n_factors,), τ ≥ 1.

    Returns:
        Shape (n_policies, n_factors).

    Raises:
        InvalidInputError: A cost is NaN or not positive, or a factor is below 1.
    """
    spent, taus = np.asarray(costs, dtype=np.float64), finite(factors, "factors", 1)
    shaped(spent, "costs", 2)
    if not (spent > 0).all() or (taus < 1).any():
        raise InvalidInputError(
            "A cost is NaN or not positive, or a factor is below 1.", remedy="Give infinity where nothing was solved."
        )
    best = spent.min(axis=1, keepdims=True)
    ratios = np.divide(spent, best, out=np.full_like(spent, np.inf), where=np.isfinite(spent))
    profile: FloatArray = (ratios[:, :, None] <= taus).mean(axis=0)
    return profile
