"""What k samples of a policy are worth, estimated without bias from n ≥ k of them. Higher scores are better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.errors import InvalidInputError
from speciate.tournaments.statistics.arrays import FloatArray, finite, flags, same_shape

_BLOCK = 1 << 22  # numbers held at once


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> FloatArray:
    """Return the chance that at least one of k samples, drawn without replacement from n, is among the c that passed.

    1 − C(n − c, k) / C(n, k) = 1 − ∏_{i=n−c+1}^{n} (1 − k/i), unbiased for 1 − (1 − p)^k. Summed as logarithms, so that
    a tiny chance keeps all its digits. Source: Chen et al. 2021, arXiv 2107.03374, section 2.1.

    Args:
        n: Samples of each problem.
        c: Those that passed, 0 ≤ c ≤ n.
        k: Samples that the user would draw, 1 ≤ k ≤ n.

    Returns:
        The shape that n, c and k broadcast to: ``pass_at_k(n[:, None], c[:, None], ks)`` is (n_problems, n_ks).

    Raises:
        InvalidInputError: A number is not whole, or not in its range.
    """
    total, passed, drawn = np.broadcast_arrays(*(finite(x, name) for x, name in ((n, "n"), (c, "c"), (k, "k"))))
    if not all((x == np.floor(x)).all() for x in (total, passed, drawn)):
        raise InvalidInputError("n, c and k count samples.", remedy="Give whole numbers.")
    if not ((passed >= 0) & (passed <= total) & (drawn >= 1) & (drawn <= total)).all():
        raise InvalidInputError("pass@k needs 0 ≤ c ≤ n and 1 ≤ k ≤ n.", remedy="Take more samples, or a smaller k.")
    log_missed = np.zeros(total.shape)
    certain = total - passed < drawn  # fewer failures than draws
    for i in range(int(passed.max())):
        used = (i < passed) & ~certain
        log_missed += np.log1p(np.where(used, -drawn / np.maximum(total - i, 1), 0.0))
    return np.where(certain, 1.0, -np.expm1(log_missed))


def best_at_k(scores: ArrayLike, k: int | Sequence[int]) -> FloatArray:
    """Return the expected best of k samples drawn without replacement from n: unbiased for the expected maximum of k.

    Σ_i C(i − 1, k − 1) / C(n, k) · x₍ᵢ₎ over the scores in ascending order; ties need no care. Of scores that are 0 or
    1 this is pass@k. The weights are made from the largest score downwards, so that no binomial is ever formed.

    Args:
        scores: Shape (..., n), the samples of a problem along the last axis. A failed sample has the score that it
            counts for, never NaN.
        k: One number of draws or several, 1 ≤ k ≤ n.

    Returns:
        Shape (...) for one k, (..., n_ks) for several.

    Raises:
        InvalidInputError: A score is not finite, or a k is not in its range.
    """
    given = finite(scores, "scores")
    if given.ndim == 0:
        raise InvalidInputError("scores is a single number.", remedy="Give the samples along the last axis.")
    ascending = np.sort(given, axis=-1)
    weights = _shares_of_ranks(ascending.shape[-1], [k] if isinstance(k, int | np.integer) else list(k))
    # What is lost against the largest score: exact for k = n and for equal scores.
    largest = ascending[..., -1:]
    best: FloatArray = largest - (largest - ascending) @ weights.T
    return best[..., 0] if isinstance(k, int | np.integer) else best


def _shares_of_ranks(n: int, ks: Sequence[int]) -> FloatArray:
    """Return how often each rank is the best of k, shape (n_ks, n): w_n = k/n, w_{i−1} = w_i (i − k) / (i − 1)."""
    if not ks or not all(isinstance(k, int | np.integer) and 1 <= k <= n for k in ks):
        raise InvalidInputError(f"best@k of {n} samples with k = {list(ks)}.", remedy=f"Choose k from 1 to {n}.")
    draws = np.asarray(ks, dtype=np.float64)[:, None]
    ranks = np.arange(n, 1, -1, dtype=np.float64)[None]
    steps = np.maximum(ranks - draws, 0.0) / (ranks - 1.0)
    falling = draws / n * np.cumprod(np.concatenate([np.ones_like(draws), steps], axis=1), axis=1)
    return falling[:, ::-1]


def expected_best_at_k(rewards: ArrayLike, k: int | Sequence[int], weightings: ArrayLike) -> FloatArray:
    """Return E_w[best@k of wᵀr]: what k samples are worth to users whose trade-offs are the given weightings.

    The maximum is taken inside, the mean over weightings outside, as in the reward of Vector Policy Optimization
    (Bahlous-Boldi et al. 2026, arXiv 2605.22817).

    Args:
        rewards: Shape (n, d), normalised, higher is better; a failed sample is the row that it counts for.
        k: One number of draws or several, 1 ≤ k ≤ n.
        weightings: Shape (n_weightings, d), each non-negative with sum 1. Use the same for every policy.

    Returns:
        Shape () for one k, (n_ks,) for several.

    Raises:
        InvalidInputError: The shapes do not fit, a value is not finite, or a k is not in its range.
    """
    points, weights = finite(rewards, "rewards", 2), finite(weightings, "weightings", 2)
    if points.shape[1] != weights.shape[1]:
        raise InvalidInputError(
            f"rewards have {points.shape[1]} components and weightings {weights.shape[1]}.",
            remedy="Draw weightings of the dimension of the reward vector.",
        )
    if (weights < 0).any() or not np.allclose(weights.sum(axis=1), 1.0):
        raise InvalidInputError("A weighting is negative or does not sum to 1.", remedy="Draw points of the simplex.")
    several = [k] if isinstance(k, int | np.integer) else list(k)
    rows = max(1, _BLOCK // len(points))
    total = np.zeros(len(several))
    for start in range(0, len(weights), rows):
        total += best_at_k(weights[start : start + rows] @ points.T, several).sum(axis=0)
    mean: FloatArray = total / len(weights)
    return mean[0] if isinstance(k, int | np.integer) else mean


@dataclass(frozen=True, slots=True)
class Diversity:
    """Mean L1 distance between the reward vectors of two different samples; None where there are fewer than two.

    Attributes:
        every: Over all n samples: a failed one stands where its row says, so failing often can look like diversity.
        valid: Over the valid samples only, which can be very few. Neither number is honest without the other.
        n: Samples.
        n_valid: Valid samples.
    """

    every: float | None
    valid: float | None
    n: int
    n_valid: int


def diversity(rewards: ArrayLike, valid: ArrayLike | None = None) -> Diversity:
    """Return how far apart the reward vectors of a policy's samples lie.

    2 / (n (n − 1)) · Σ_{i<j} ‖r_i − r_j‖₁, in O(d n log n): in sorted order the i-th of n values takes part in the
    pairwise distances 2i − n − 1 times. The direction of rewards does not matter; their scale does, so normalise first.
    Source: Bahlous-Boldi et al. 2026, arXiv 2605.22817.

    Args:
        rewards: Shape (n, d), normalised; the row of a failed sample is what it counts for (zeros in the paper).
        valid: Shape (n,), which samples could be scored; None says all.

    Raises:
        InvalidInputError: The shapes do not fit, or a reward is not finite.
    """
    points = finite(rewards, "rewards", 2)
    kept = np.ones(len(points), dtype=np.bool_) if valid is None else flags(valid, "valid", 1)
    same_shape(kept, points[:, 0], "valid and the first axis of rewards")
    return Diversity(_mean_pairwise_l1(points), _mean_pairwise_l1(points[kept]), len(points), int(kept.sum()))


def spread(rewards: ArrayLike, groups: ArrayLike) -> tuple[float, float]:
    """Return the mean L1 distance between two samples of one group, and between two of different groups.

    Groups are completions: answers of one completion can differ because the policy saw the earlier ones when it wrote
    the later ones, answers of two can only differ by chance. NaN where there is no such pair.

    Args:
        rewards: Shape (n, d), normalised; n may be 0.
        groups: Which group each sample is of, shape (n,), any integers.

    Raises:
        InvalidInputError: The shapes do not fit, or a reward is not finite.
    """
    labels = np.asarray(groups, dtype=np.int64)
    if labels.size == 0:
        return math.nan, math.nan
    points = finite(rewards, "rewards", 2)
    same_shape(labels, points[:, 0], "groups and the first axis of rewards")
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order], prepend=labels[order[0]] - 1))
    parts = np.split(points[order], starts[1:])
    pairs = sum(len(part) * (len(part) - 1) // 2 for part in parts)
    inside = math.fsum(_pairwise_l1(part) for part in parts if len(part) > 1)
    others = len(points) * (len(points) - 1) // 2 - pairs
    between = max(0.0, _pairwise_l1(points) - inside) if others else math.nan
    return (inside / pairs if pairs else math.nan), (between / others if others else math.nan)


def _mean_pairwise_l1(points: FloatArray) -> float | None:
    n = len(points)
    return None if n < 2 else _pairwise_l1(points) / (n * (n - 1) / 2)


def _pairwise_l1(points: FloatArray) -> float:
    n = len(points)
    times = 2.0 * np.arange(1, n + 1) - n - 1
    return float((times @ np.sort(points, axis=0)).sum())


def chance_of_better(a: ArrayLike, b: ArrayLike) -> FloatArray:
    """Return P(A > B) + ½ P(A = B) of each problem: a sample of one policy against a sample of the other.

    The Mann–Whitney statistic divided by the number of pairs; its mean over problems is the "probability of
    improvement" of Agarwal et al. 2021, arXiv 2108.13264, section 4.3.

    Args:
        a: Scores of the first policy, shape (n_problems, n_a), higher is better.
        b: Scores of the second, shape (n_problems, n_b).

    Returns:
        Shape (n_problems,), ½ where neither is better.

    Raises:
        InvalidInputError: The numbers of problems differ, or a score is not finite.
    """
    first, second = finite(a, "a", 2), finite(b, "b", 2)
    same_shape(first[:, 0], second[:, 0], "The problems of a and b")
    signs = np.sign(first[:, :, None] - second[:, None, :])
    chance: FloatArray = 0.5 + 0.5 * signs.mean(axis=(1, 2))
    return chance
