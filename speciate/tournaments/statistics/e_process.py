"""A betting e-process: anytime-valid evidence that lets a tournament stop early.

A p-value that is inspected after every problem rejects a true null far too often: the t test in 25 % of tournaments of
40 problems, inspected from the fifth on. An e-process may be inspected at any time: under the null it ever reaches 1/α
with probability at most α (Ville 1939; Ramdas et al. 2023, arXiv 2210.01948).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.arrays import FloatArray

STAKES = np.geomspace(0.5, 16.0, 11)
"""λ of the bets, per unit of the difference. The best λ for effect μ and deviation σ is μ/σ²; a grid is averaged."""


@dataclass(frozen=True, eq=False, slots=True)
class EProcess:
    """The evidence after each problem."""

    log_a: FloatArray
    """Log wealth of betting that A is better, shape (n_problems,)."""
    log_b: FloatArray
    """The same for B."""
    threshold: float
    """2/α, 40 at α = 0.05: at this wealth the tournament may stop and name the better policy."""
    stopped_at: int | None
    """Number of problems after which a wealth first reached the threshold, or None."""

    @property
    def e_value(self) -> float:
        """Two-sided e-value after the last problem, (wealth of A + wealth of B) / 2; large values reject the null."""
        return float(np.exp(min(np.logaddexp(self.log_a[-1], self.log_b[-1]) - np.log(2.0), 700.0)))

    @property
    def better(self) -> str | None:
        """``a`` or ``b``: the wealth that first reached the threshold; None without a decision."""
        if self.stopped_at is None:
            return None
        return "a" if self.log_a[self.stopped_at - 1] > self.log_b[self.stopped_at - 1] else "b"


def e_process(differences: ArrayLike, alpha: float = 0.05) -> EProcess:
    """Return the evidence of paired differences that arrive one after another.

    Each bet is on the sign of the next difference D given its size: the wealth is multiplied by e^{λD} / cosh(λD),
    whose mean is 1 if D is symmetric around 0 given the past. That is the null of the sign-flip test, of which this is
    the sequential form. The wealths of all λ in ``STAKES`` are averaged; −λ bets on B. A product does not depend on the
    order of its factors, so the last e-value depends on the *set* of problems only.

    Bets that need only a mean of 0 and |D| ≤ 1, ∏ (1 + λD), are limited to |λ| ≤ 1, far below μ/σ² of solve rates. In a
    simulation of 40 problems and 8 seeds they found 16 % of the effects, these bets 39 %, and a fixed test 67 %.

    Sources: de la Peña 1999, theorem 6.1 (symmetric variables); Waudby-Smith and Ramdas 2024, arXiv 2010.09686
    (betting); Robbins 1970 (mixtures).

    ``differences`` (n_problems,) are A − B, one per problem, in the order in which problems were run, which must be
    random and drawn before the first run. ``alpha`` is the probability of ever stopping if neither policy is better.
    """
    bets = np.asarray(differences, dtype=np.float64)[:, None] * STAKES
    log_a, log_b = _log_wealth(bets), _log_wealth(-bets)
    threshold = 2.0 / alpha
    (reached,) = np.nonzero(np.maximum(log_a, log_b) >= np.log(threshold))
    return EProcess(log_a, log_b, threshold, int(reached[0]) + 1 if len(reached) else None)


def _log_wealth(bets: FloatArray) -> FloatArray:
    # log(e^x / cosh x) = x − log(e^x + e^−x) + log 2, which cannot overflow.
    paths = np.cumsum(bets - np.logaddexp(bets, -bets) + np.log(2.0), axis=0)
    wealth: FloatArray = np.logaddexp.reduce(paths, axis=1) - np.log(len(STAKES))
    return wealth
