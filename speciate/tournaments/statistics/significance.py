"""Paired two-sided tests of two policies on the same problems: sign flips, McNemar, Holm's adjustment.

In simulation (docs/evidence/power.md: 40 problems, 8 seeds, half a logit better) McNemar's test on unlock sets rejects
3 % because the sets saturate; the sign-flip test on solve rates rejects 73 % and holds its level. The sign-flip test is
therefore primary; McNemar's table shows the problems that only one policy unlocked.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.arrays import FloatArray

_ENUMERATED = 14  # differing problems; 2^14 sign patterns cost as much as 20,000 random ones
_BLOCK = 1 << 22  # numbers held at once


class SignFlip(NamedTuple):
    difference: float
    """Mean paired difference, A − B; positive if A is better."""
    p_value: float
    """Two-sided."""
    exact: bool
    """True if every sign pattern was enumerated, False if a random sample was drawn."""


def sign_flips(several: Sequence[ArrayLike], rng: np.random.Generator, draws: int = 20_000) -> tuple[SignFlip, ...]:
    """Test if paired differences are symmetric around 0 (Fisher's randomisation test, two-sided), for each comparison.

    Under the null each problem's difference is as likely as its negative, so |mean| is compared with its values under
    sign flips: all of them for few problems, else ``draws`` random ones with p = (1 + hits) / (1 + draws), which is
    valid for any number of draws (Phipson and Smyth 2010). The comparisons share the random patterns, as long
    as the longest one: a p-value is as valid as in a separate test, though from another sample, and Holm's adjustment
    allows any dependence.

    Each comparison has shape (n_problems,), A − B: of solve rates or of −log ERT, one per problem and never one per
    seed, because the problem is the unit. All are finite; else ``ValueError``.
    """
    paired = [np.asarray(differences, dtype=np.float64) for differences in several]
    if not all(np.isfinite(values).all() for values in paired):
        raise ValueError("paired differences hold NaN or infinity: expected finite numbers")
    moving = [np.abs(values[values != 0.0]) for values in paired]  # flipping a zero changes nothing
    # Sums that differ by rounding only count as equal.
    thresholds = np.array([abs(float(v.sum())) - 1e-12 * float(m.sum()) for v, m in zip(paired, moving, strict=True)])
    shares = np.array([_share(m, t) for m, t in zip(moving, thresholds, strict=True)])
    exact = ~np.isnan(shares)
    if not exact.all():
        drawn = np.flatnonzero(~exact)
        shares[drawn] = (1 + _hits([moving[i] for i in drawn], thresholds[drawn], rng, draws)) / (1 + draws)
    flips = zip(paired, shares.tolist(), exact.tolist(), strict=True)
    return tuple(SignFlip(float(values.mean()), share, whole) for values, share, whole in flips)


def _share(moving: FloatArray, threshold: float) -> float:
    """Return the share of all sign patterns that are as extreme; NaN if there are too many to enumerate."""
    if len(moving) > _ENUMERATED:
        return np.nan
    patterns = np.arange(1 << len(moving))[:, None] >> np.arange(len(moving)) & 1
    return float((np.abs((2.0 * patterns - 1.0) @ moving) >= threshold).mean())


def _hits(moving: Sequence[FloatArray], thresholds: FloatArray, rng: np.random.Generator, draws: int) -> FloatArray:
    longest = max(len(values) for values in moving)
    # Missing problems are zeros, which no flip changes.
    columns = np.stack([np.pad(values, (0, longest - len(values))) for values in moving], axis=1)
    rows = max(1, _BLOCK // longest)
    hits = np.zeros(len(moving))
    for start in range(0, draws, rows):
        bits = rng.integers(0, 2, (min(rows, draws - start), longest), dtype=np.int8)
        hits += (np.abs((2.0 * bits - 1.0) @ columns) >= thresholds).sum(axis=0)
    return hits


class McNemar(NamedTuple):
    """The two-by-two table of two policies with its exact test."""

    both: int
    only_a: int
    only_b: int
    neither: int
    p_value: float
    """Two-sided binomial, of only_a among only_a + only_b with probability ½; 1 without such pairs."""


def mcnemar(a: ArrayLike, b: ArrayLike) -> McNemar:
    """Test if two unlock sets differ by more than chance (exact McNemar test, two-sided).

    p = min(1, 2 P[Bin(only_a + only_b, ½) ≤ min(only_a, only_b)]). Source: McNemar 1947; the exact form is Agresti,
    Categorical Data Analysis, section 11.1. ``a`` and ``b`` are True for unlocked problems, shape (n_problems,).
    """
    from scipy import special  # imported here: every process loads this module, and few run a test

    first, second = np.asarray(a, dtype=np.bool_), np.asarray(b, dtype=np.bool_)
    only_a, only_b = int((first & ~second).sum()), int((second & ~first).sum())
    tail = float(special.bdtr(min(only_a, only_b), only_a + only_b, 0.5))
    both, neither = int((first & second).sum()), int((~first & ~second).sum())
    return McNemar(both, only_a, only_b, neither, min(1.0, 2.0 * tail))


def holm(p_values: Sequence[float] | FloatArray) -> FloatArray:
    """Return Holm's (1979) p-values p̃₍ᵢ₎ = max_{j≤i} min(1, (m − j + 1) p₍ⱼ₎), valid under any dependence."""
    raw = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(raw, kind="stable")
    stepped = np.minimum(1.0, raw[order] * np.arange(len(raw), 0, -1))
    adjusted = np.empty_like(raw)
    adjusted[order] = np.maximum.accumulate(stepped)
    return adjusted
