"""Tests of one policy against another on the same problems: sign flips, McNemar, Holm. All two-sided.

In simulation (docs/evidence/power.md; 40 problems, 8 seeds, +½ logit) McNemar's test on unlock sets rejects 3 %,
because the sets saturate; the sign-flip test on solve rates rejects 73 % and holds its level. So the latter is primary,
and the former says which problems only one of the two unlocked.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.errors import InvalidInputError
from speciate.tournaments.statistics.arrays import BoolArray, FloatArray, at_least, finite, flags, same_shape

_ENUMERATED = 14  # problems that differ; 2^14 sign patterns are as cheap as 20,000 random ones
_BLOCK = 1 << 22  # numbers held at once


@dataclass(frozen=True, slots=True)
class SignFlip:
    """Result of the paired sign-flip test.

    Attributes:
        difference: Mean paired difference, A − B; positive where A is better.
        p_value: Two-sided.
        problems: Number of pairs.
        exact: Whether every sign pattern was tried, rather than a random sample of them.
    """

    difference: float
    p_value: float
    problems: int
    exact: bool


def sign_flip(differences: ArrayLike, rng: np.random.Generator, draws: int = 20_000) -> SignFlip:
    """Test whether paired differences are symmetric around 0 (Fisher's randomisation test, two-sided).

    Under the null each problem's difference is as likely as its negative, so |mean| is compared with its values under
    sign flips: all of them for few problems, else ``draws`` random ones with p = (1 + hits) / (1 + draws), which is
    valid at any number of draws (Phipson and Smyth 2010).

    Args:
        differences: Shape (n_problems,), A − B, one per problem: of solve rates, or of −log ERT. Never one per seed:
            the problem is the unit.
        rng: Draws the sign patterns where there are too many to try all.
        draws: How many patterns to draw.

    Raises:
        InvalidInputError: A difference is not finite, or there are no draws.
    """
    return sign_flips([differences], rng, draws)[0]


def sign_flips(several: Sequence[ArrayLike], rng: np.random.Generator, draws: int = 20_000) -> tuple[SignFlip, ...]:
    """Do the same for several comparisons, each with its own problems; they share the random patterns.

    Each p-value is what it would be alone; that they depend on each other is nothing to Holm's adjustment.

    Raises:
        InvalidInputError: A difference is not finite, or there are no draws.
    """
    at_least(draws, 1, "draws")
    paired = [finite(differences, "differences", 1) for differences in several]
    moving = [np.abs(values[values != 0.0]) for values in paired]  # a zero stays a zero whatever its sign
    # Sums that are equal on paper differ by rounding: they count as equal.
    thresholds = np.array([abs(float(v.sum())) - 1e-12 * float(m.sum()) for v, m in zip(paired, moving, strict=True)])
    shares = np.array([_share(m, t) for m, t in zip(moving, thresholds, strict=True)])
    exact = ~np.isnan(shares)
    if not exact.all():
        drawn = np.flatnonzero(~exact)
        shares[drawn] = (1 + _hits([moving[i] for i in drawn], thresholds[drawn], rng, draws)) / (1 + draws)
    found = zip(paired, shares.tolist(), exact.tolist(), strict=True)
    return tuple(SignFlip(float(values.mean()), share, len(values), whole) for values, share, whole in found)


def _share(moving: FloatArray, threshold: float) -> float:
    """Return the share of all sign patterns that are as extreme; NaN where there are too many to try."""
    if len(moving) > _ENUMERATED:
        return np.nan
    patterns = np.arange(1 << len(moving))[:, None] >> np.arange(len(moving)) & 1
    return float((np.abs((2.0 * patterns - 1.0) @ moving) >= threshold).mean())


def _hits(moving: Sequence[FloatArray], thresholds: FloatArray, rng: np.random.Generator, draws: int) -> FloatArray:
    longest = max(len(values) for values in moving)
    # Problems that a comparison lacks are zeros, which stay zeros.
    columns = np.stack([np.pad(values, (0, longest - len(values))) for values in moving], axis=1)
    rows = max(1, _BLOCK // longest)
    hits = np.zeros(len(moving))
    for start in range(0, draws, rows):
        bits = rng.integers(0, 2, (min(rows, draws - start), longest), dtype=np.int8)
        hits += (np.abs((2.0 * bits - 1.0) @ columns) >= thresholds).sum(axis=0)
    return hits


@dataclass(frozen=True, slots=True)
class McNemar:
    """The two-by-two table of two policies, and the exact test on it.

    Attributes:
        both: Pairs where both succeeded.
        only_a: Pairs where only A did.
        only_b: Pairs where only B did.
        neither: Pairs where neither did.
        p_value: Two-sided binomial, of only_a among only_a + only_b at chance ½; 1 with no such pairs.
    """

    both: int
    only_a: int
    only_b: int
    neither: int
    p_value: float


def mcnemar(a: ArrayLike, b: ArrayLike) -> McNemar:
    """Test whether two unlock sets differ in more than chance (exact McNemar test, two-sided).

    p = min(1, 2 P[Bin(only_a + only_b, ½) ≤ min(only_a, only_b)]). Source: McNemar 1947; the exact form is Agresti,
    Categorical Data Analysis, section 11.1.

    Args:
        a: Shape (n_problems,), which problems A unlocked.
        b: The same for B, the same problems in the same order.

    Raises:
        InvalidInputError: The shapes differ, or a value is neither true nor false.
    """
    first, second = flags(a, "a", 1), flags(b, "b", 1)
    same_shape(first, second, "a and b")
    return _mcnemar(first.ravel(), second.ravel())


def mcnemar_pooled(a: ArrayLike, b: ArrayLike) -> McNemar:
    """Do the same with every (problem, seed) as a pair of its own: more power, and a stronger null hypothesis.

    The null is that on *every* problem both have the same solve rate. A policy that is better on half of the problems
    and worse on the other half is not in this null, though neither is better on average: two logits either way, and the
    test rejects 25 % in the same simulation. Read it beside the sign-flip test, never instead of it.

    Args:
        a: Shape (n_problems, n_seeds), which runs of A unlocked their problem.
        b: The same for B, the same problems and seeds.

    Raises:
        InvalidInputError: The shapes differ, or a value is neither true nor false.
    """
    first, second = flags(a, "a", 2), flags(b, "b", 2)
    same_shape(first, second, "a and b")
    return _mcnemar(first.ravel(), second.ravel())


def _mcnemar(a: BoolArray, b: BoolArray) -> McNemar:
    from scipy import special  # every process of the service has this module, and few test anything

    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    tail = float(special.bdtr(min(only_a, only_b), only_a + only_b, 0.5))
    return McNemar(int((a & b).sum()), only_a, only_b, int((~a & ~b).sum()), min(1.0, 2.0 * tail))


def holm(p_values: Sequence[float] | FloatArray) -> FloatArray:
    """Return p-values adjusted for their number, so that the chance of any false rejection keeps its level.

    In ascending order p̃₍ᵢ₎ = max_{j≤i} min(1, (m − j + 1) p₍ⱼ₎). Valid under any dependence. Source: Holm 1979.

    Args:
        p_values: Shape (m,), one for each policy against the baseline.

    Returns:
        Shape (m,), in the order given.

    Raises:
        InvalidInputError: A value is not in [0, 1].
    """
    raw = finite(p_values, "p_values", 1)
    if not ((raw >= 0.0) & (raw <= 1.0)).all():
        raise InvalidInputError("A p-value is not in [0, 1].", remedy="Give p-values, not test statistics.")
    order = np.argsort(raw, kind="stable")
    stepped = np.minimum(1.0, raw[order] * np.arange(len(raw), 0, -1))
    adjusted = np.empty_like(raw)
    adjusted[order] = np.maximum.accumulate(stepped)
    return adjusted
