"""Unbiased estimators from n samples per problem: pass@k, best@k, diversity, P(A > B). Higher scores are better."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.arrays import FloatArray


def pass_at_k(n: ArrayLike, c: ArrayLike, k: ArrayLike) -> FloatArray:
    """Return the probability that k of n samples, drawn without replacement, include one of the c that passed.

    1 − C(n − c, k) / C(n, k) = 1 − ∏_{i=n−c+1}^{n} (1 − k/i), unbiased for 1 − (1 − p)^k. Summed as logarithms, so that
    tiny probabilities keep their precision. Source: Chen et al. 2021, arXiv 2107.03374, section 2.1. The result has the
    shape that n, c and k broadcast to.
    """
    total, passed, drawn = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (n, c, k)))
    log_missed = np.zeros(total.shape)
    certain = total - passed < drawn  # fewer failures than draws
    for i in range(int(passed.max())):
        used = (i < passed) & ~certain
        log_missed += np.log1p(np.where(used, -drawn / np.maximum(total - i, 1), 0.0))
    return np.where(certain, 1.0, -np.expm1(log_missed))


def best_at_k(scores: ArrayLike, k: int | Sequence[int]) -> FloatArray:
    """Return the expected maximum of k of n samples, drawn without replacement: unbiased for the expected best of k.

    Σ_i C(i − 1, k − 1) / C(n, k) · x₍ᵢ₎ over the scores in ascending order. Ties need no special case. For scores of 0
    or 1 this equals pass@k. The weights are computed from the largest score down, so that no binomial is formed.

    Scores have shape (..., n); failed samples need a finite one. The result has shape (...) for one k, (..., n_ks) for
    several.
    """
    ascending = np.sort(np.asarray(scores, dtype=np.float64), axis=-1)
    weights = _shares_of_ranks(ascending.shape[-1], [k] if isinstance(k, int | np.integer) else list(k))
    # As a loss against the largest score: exact for k = n and for equal scores.
    largest = ascending[..., -1:]
    best: FloatArray = largest - (largest - ascending) @ weights.T
    return best[..., 0] if isinstance(k, int | np.integer) else best


def _shares_of_ranks(n: int, ks: Sequence[int]) -> FloatArray:
    """Return P(rank is the best of k), shape (n_ks, n): w_n = k/n, w_{i−1} = w_i (i − k) / (i − 1)."""
    draws = np.asarray(ks, dtype=np.float64)[:, None]
    ranks = np.arange(n, 1, -1, dtype=np.float64)[None]
    steps = np.maximum(ranks - draws, 0.0) / (ranks - 1.0)
    falling = draws / n * np.cumprod(np.concatenate([np.ones_like(draws), steps], axis=1), axis=1)
    return falling[:, ::-1]


def diversity(rewards: ArrayLike, valid: ArrayLike) -> tuple[float, float]:
    """Return the mean L1 distance between two of a policy's reward vectors, and between two valid ones.

    Frequent failure can look like diversity in the first number. NaN with fewer than two samples.

    2 / (n (n − 1)) · Σ_{i<j} ‖r_i − r_j‖₁, in O(d n log n): in sorted order the i-th of n values enters the pairwise
    distances 2i − n − 1 times. The direction of rewards does not matter, but their scale does: normalise first. Source:
    Bahlous-Boldi et al. 2026, arXiv 2605.22817.

    Rewards have shape (n, d), with zeros for failed samples as in the paper; ``valid`` has shape (n,).
    """
    points = np.asarray(rewards, dtype=np.float64)
    return _mean_pairwise_l1(points), _mean_pairwise_l1(points[np.asarray(valid, dtype=np.bool_)])


def spread(rewards: ArrayLike, groups: ArrayLike) -> tuple[float, float]:
    """Return the mean L1 distance between two samples of the same group, and between two of different groups.

    Groups are completions, shape (n,). Answers of one completion can differ because the policy saw the earlier ones
    while writing the later ones; those of two differ by chance alone. NaN without such a pair. Rewards have shape
    (n, d), normalised; n may be 0.
    """
    labels = np.asarray(groups, dtype=np.int64)
    if labels.size == 0:
        return math.nan, math.nan
    points = np.asarray(rewards, dtype=np.float64)
    order = np.argsort(labels, kind="stable")
    starts = np.flatnonzero(np.diff(labels[order], prepend=labels[order[0]] - 1))
    parts = np.split(points[order], starts[1:])
    pairs = sum(len(part) * (len(part) - 1) // 2 for part in parts)
    inside = math.fsum(_pairwise_l1(part) for part in parts if len(part) > 1)
    others = len(points) * (len(points) - 1) // 2 - pairs
    between = max(0.0, _pairwise_l1(points) - inside) if others else math.nan
    return (inside / pairs if pairs else math.nan), (between / others if others else math.nan)


def _mean_pairwise_l1(points: FloatArray) -> float:
    n = len(points)
    return math.nan if n < 2 else _pairwise_l1(points) / (n * (n - 1) / 2)


def _pairwise_l1(points: FloatArray) -> float:
    n = len(points)
    times = 2.0 * np.arange(1, n + 1) - n - 1
    return float((times @ np.sort(points, axis=0)).sum())


def chance_of_better(a: ArrayLike, b: ArrayLike) -> FloatArray:
    """Return P(A > B) + ½ P(A = B) per problem for one sample of each policy, shape (n_problems,).

    The Mann–Whitney statistic divided by the number of pairs. Its mean over problems is the "probability of
    improvement" of Agarwal et al. 2021, arXiv 2108.13264, section 4.3. ``a`` and ``b`` are scores of shape (n_problems,
    n), higher is better.
    """
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    signs = np.sign(first[:, :, None] - second[:, None, :])
    chance: FloatArray = 0.5 + 0.5 * signs.mean(axis=(1, 2))
    return chance
