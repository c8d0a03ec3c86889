"""Exact permutation tests of two training methods: the training run is the unit.

Tests of checkpoints resample problems: they say that *this* checkpoint is better than *that* one. Two runs of one
method differ too, so a test of checkpoints rejects the null that two methods are equal far more often than its level
(docs/evidence/power.md). Here every training run is one number, its mean over the problems, however many problems and
searches are behind it.
"""

import math
import sys
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, count
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speciate.domain.arrays import FloatArray
from speciate.tournaments.statistics.bootstrap import all_equal
from speciate.tournaments.statistics.significance import sign_flips

_ENUMERATED: Final = 200_000  # assignments of labels; two methods with 10 runs each have 184,756
_ROUNDING: Final = 1e-12


@dataclass(frozen=True, slots=True)
class MethodTest:
    """Comparison of two methods, each with several training runs."""

    rates_a: tuple[float, ...]  # mean over problems of each training run of A; if paired, B's in the same order
    rates_b: tuple[float, ...]
    difference: float  # mean of ``rates_a`` − mean of ``rates_b``; positive if A is better
    low: float | None  # lower end of the t interval of the difference; None with one run or without any variation
    high: float | None
    p_value: float  # two-sided, of the permutation test
    smallest_p: float  # smallest p that so many training runs can reach, whatever their results
    paired: bool
    exact: bool  # true if every permutation was enumerated, False if a random sample was drawn
    wins: int  # training seeds on which A is better; if unpaired, pairs of a run of A and a run of B
    ties: int
    losses: int


def compare_methods(
    a: ArrayLike, b: ArrayLike, rng: np.random.Generator, *, paired: bool, level: float = 0.95, draws: int = 20_000
) -> MethodTest:
    """Test if two training methods differ, from several training runs of each (permutation test, two-sided).

    - Unit: the training run. Its value is its mean over the problems, so problems and searches add precision, never n.
    - Hypothesis, paired: in every training seed, the difference of the two runs is symmetric around 0, as it is if both
      methods yield runs of one distribution. The test flips the signs of the differences.
    - Hypothesis, unpaired: all runs are drawn from one distribution. The test permutes the labels of the runs.
    - Assumptions: training runs (paired: pairs of runs) are independent; the problems are the same for all runs and
      were not chosen by results. The conclusion is about these problems. Unpaired methods that have equal means but
      differ in spread *and* in number of runs violate the hypothesis: train equally many.

    The interval is Student's over paired differences, otherwise Welch's: it assumes that means of runs are roughly
    normal, which the test does not, so at the margin the two can disagree. Decide by p.

    ``a`` and ``b`` have shape (runs, problems), higher is better; ``ValueError`` if one is not finite. ``rng`` draws
    permutations if there are too many to enumerate: more than 14 pairs, or more than 10 runs of each. Paired, row i of
    both shares a training seed.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    x, y = first.mean(axis=1), second.mean(axis=1)
    if not np.isfinite([x.sum(), y.sum()]).all():
        raise ValueError("rewards of training runs hold NaN or infinity: expected finite numbers")
    if paired:
        (flip,) = sign_flips([x - y], rng, draws)
        p_value, exact, contrasts = flip.p_value, flip.exact, x - y
    else:
        p_value, exact = _permute(x, y, rng, draws)
        contrasts = np.subtract.outer(x, y)
    equal = np.abs(contrasts) <= _ROUNDING * max(float(np.abs(x).max()), float(np.abs(y).max()))
    low, high = _interval([x - y] if paired else [x, y], float(x.mean() - y.mean()), level)
    return MethodTest(
        rates_a=tuple(x.tolist()),
        rates_b=tuple(y.tolist()),
        difference=float(x.mean() - y.mean()),
        low=low,
        high=high,
        p_value=p_value,
        smallest_p=max(smallest_p(len(x), len(y), paired=paired), 0.0 if exact else 1 / (1 + draws)),
        paired=paired,
        exact=exact,
        wins=int((~equal & (contrasts > 0)).sum()),
        ties=int(equal.sum()),
        losses=int((~equal & (contrasts < 0)).sum()),
    )


def smallest_p(runs_a: int, runs_b: int, *, paired: bool) -> float:
    """Return the smallest two-sided p that the exact test of so many training runs can reach.

    Paired, two of 2^n patterns of signs are always as extreme. Unpaired, the observed labels are one of C(n_a + n_b,
    n_a), and with equally many runs their exchange is as extreme.
    """
    if paired:
        return 2.0 ** (1 - runs_a)
    return (2 if runs_a == runs_b else 1) / math.comb(runs_a + runs_b, runs_a)


def runs_needed(alpha: float, comparisons: int = 1, *, paired: bool) -> int:
    """Return the fewest training runs of each method with which a difference can be shown after Holm's adjustment."""
    return next(runs for runs in count(1) if smallest_p(runs, runs, paired=paired) * comparisons <= alpha)


def runs_text(runs_a: int, runs_b: int, *, paired: bool) -> str:
    pairs = f"{runs_a} paired training seed{'s' * (runs_a != 1)}"
    return pairs if paired else f"{runs_a} and {runs_b} training runs"


def too_few_runs(runs_a: int, runs_b: int, alpha: float, comparisons: int = 1, *, paired: bool) -> str:
    """Return why so many training runs cannot show a difference whatever their results; empty if they can."""
    least = smallest_p(runs_a, runs_b, paired=paired) * comparisons
    if least <= alpha:
        return ""
    runs = runs_text(runs_a, runs_b, paired=paired)
    adjusted = f" after Holm over {comparisons}" if comparisons > 1 else ""
    needed = runs_needed(alpha, comparisons, paired=paired)
    return (
        f"{runs} cannot show a difference between methods: p is at least {min(1.0, least):.2g}{adjusted}, expected at"
        f" least {needed} of each method"
    )


def detectable_difference(
    runs_a: int, runs_b: int, alpha: float, comparisons: int = 1, *, paired: bool, power: float = 0.8
) -> float:
    """Return the difference of two methods that the test detects with a probability of ``power``.

    By the noncentral t distribution at the largest level that the permutation test reaches. In simulation that test
    detects the difference for a power of 80 % in 78 to 80 %; with the fewest runs that can show any, in 72 to 76 %.

    In standard deviations: of the differences of paired runs, otherwise of the runs of one method; infinite if the runs
    are too few.
    """
    from scipy import special  # imported here: every process loads this module, and few plan a comparison

    least = max(smallest_p(runs_a, runs_b, paired=paired), sys.float_info.min)  # more than 1,075 pairs underflow
    level = math.floor(alpha / comparisons / least) * least
    freedom, scale = (runs_a - 1, 1 / runs_a) if paired else (runs_a + runs_b - 2, 1 / runs_a + 1 / runs_b)
    if level == 0.0 or freedom < 1:
        return math.inf
    critical = special.stdtrit(freedom, 1 - level / 2)
    return float(special.nctdtrinc(freedom, 1 - power, critical)) * math.sqrt(scale)


def _permute(x: FloatArray, y: FloatArray, rng: np.random.Generator, draws: int) -> tuple[float, bool]:
    """Return p and True if all assignments of labels were enumerated."""
    pooled = np.concatenate([x, y])
    observed = abs(float(x.mean() - y.mean())) - _ROUNDING * float(np.abs(pooled).max())
    if math.comb(len(pooled), len(x)) <= _ENUMERATED:
        return float((_distances(pooled, _assignments(len(pooled), len(x))) >= observed).mean()), True
    drawn = rng.permuted(np.tile(np.arange(len(pooled)), (draws, 1)), axis=1)[:, : len(x)]
    return (1 + int((_distances(pooled, drawn) >= observed).sum())) / (1 + draws), False


@lru_cache(maxsize=4)
def _assignments(runs: int, size: int) -> NDArray[np.uint8]:
    """Return every choice of so many runs as a row of indices: at most 2 MB, and far slower to make than to use."""
    return np.array([*combinations(range(runs), size)], dtype=np.uint8)


def _distances(pooled: FloatArray, members: NDArray[np.integer[Any]]) -> FloatArray:
    sums, n = pooled[members].sum(axis=1), members.shape[1]
    return np.asarray(np.abs(sums / n - (pooled.sum() - sums) / (len(pooled) - n)))


def _interval(groups: list[FloatArray], difference: float, level: float) -> tuple[float | None, float | None]:
    """Return the t interval of one group's mean (paired) or of a difference of two means (Welch)."""
    from scipy import special  # imported here: every process loads this module, and few compare methods

    if min(len(group) for group in groups) < 2 or all(all_equal(group) for group in groups):
        return None, None
    errors = [float(group.var(ddof=1)) / len(group) for group in groups]
    if not 0 < (total := sum(errors)) < math.inf:  # of scores whose squares are too small or large for a float
        return None, None
    freedom = 1 / sum((e / total) ** 2 / (len(g) - 1) for e, g in zip(errors, groups, strict=True))
    half = float(special.stdtrit(freedom, (1 + level) / 2)) * math.sqrt(total)
    return difference - half, difference + half
