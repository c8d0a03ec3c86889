"""Advantage estimators: map the rewards of a prompt group to one number for each rollout.

All take the same arguments and return ``Advantages``; ``ESTIMATORS`` lists them. A *group* is the set of rollouts of
one prompt. Rewards lie in [0, 1], higher is better; a positive advantage makes a rollout more likely.

Sources: Bahlous-Boldi et al., "Vector Policy Optimization", arXiv 2605.22817 (VPO and its baselines); Shao et al.,
"DeepSeekMath", arXiv 2402.03300, section 4 (GRPO); arXiv 2602.02710 (MaxRL); Bagirov et al. 2025 (Max-at-K). Vector
Max-at-K is ours: ``docs/evidence/vector-max-at-k.md``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import comb, inf
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from speciate.domain.errors import InvalidInputError
from speciate.training.weightings import WeightingSampler, draw_weightings

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

_FLAT = 1e-6  # smaller standard deviations are rounding errors


class Norm(StrEnum):
    """Divisor of the leave-one-out shares of Max-at-K."""

    GROUP_STD = "group_std"
    """The standard deviation of the group. Biases the gradient towards prompts with small differences."""
    BATCH_STD = "batch_std"
    """The standard deviation of the whole batch."""
    NONE = "none"
    """Nothing: the estimator is unbiased."""


@dataclass(frozen=True)
class EstimatorConfig:
    """Configuration of the estimators; every default is the paper's. An estimator ignores fields that it does not use.

    Attributes:
        weights: w*, shape (k,), the scalarization of scalar estimators; None is the mean.
        draws: K, random weightings of each group.
        alpha: Concentration of their Dirichlet distribution.
        sampler: Sampler of the weightings.
        kappa: κ of Max-at-K and Vector Max-at-K; None is half the group, at most 8.
        norm: Divisor of their shares.
        goals: Shape (number of groups, k): for ``goal_conditioned``, the weighting in each group's prompt, groups in
            ascending order.
        epsilon: Added to the mean in ``maxrl``.
    """

    weights: tuple[float, ...] | None = None
    draws: int = 100
    alpha: float = 1.0
    sampler: WeightingSampler = WeightingSampler.IID
    kappa: int | None = None
    norm: Norm = Norm.GROUP_STD
    goals: Sequence[Sequence[float]] | None = None
    epsilon: float = 1e-6

    def __post_init__(self) -> None:
        if self.draws < 1:
            raise InvalidInputError(f"draws = {self.draws}: expected at least 1 weighting.")
        if not 0 < self.alpha < inf:
            raise InvalidInputError(f"alpha = {self.alpha}: expected a positive concentration.")
        if self.kappa is not None and self.kappa < 1:
            raise InvalidInputError(f"kappa = {self.kappa}: expected at least 1.")
        if not 0 <= self.epsilon < inf:
            raise InvalidInputError(f"epsilon = {self.epsilon}: expected 0 or a positive number.")
        if self.weights is not None and not np.isfinite(self.weights).all():
            raise InvalidInputError(f"weights = {self.weights}: expected finite numbers.")


@dataclass(frozen=True, slots=True)
class Advantages:
    """Result of an estimator.

    Attributes:
        values: Shape (B,): one advantage for each rollout, to be broadcast to all its tokens.
        diagnostics: ``flat_groups`` (share of groups with zero advantages), ``score_mean``,
            ``score_std`` (mean over groups of the standard deviation within), ``correlation`` (largest correlation
            between two reward components; near 1 a vector estimator degrades to a scalar one).
    """

    values: FloatArray
    diagnostics: Mapping[str, float]


class Estimator(Protocol):
    """Function from rewards to advantages."""

    def __call__(
        self, rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
    ) -> Advantages:
        """Return the advantages of a batch.

        Args:
            rewards: Shape (B, m, k), float64 in [0, 1]; rows of missing answers are zero.
            groups: Shape (B,): the group of each rollout, any integers.
            config: Configuration; None means the paper's defaults.
            rng: Source of all randomness.

        Raises:
            InvalidInputError: Shapes do not fit, rewards are not finite or out of range, a group is too small, or the
                estimator requires m = 1.
        """
        ...


def grpo(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """GRPO: the fixed scalarization w*ᵀr, standardised within the group (arXiv 2402.03300, section 4.1). m = 1."""
    batch, config = _RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    return batch.standardised(batch.answers @ batch.scalarization(config))


def gdpo(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """GDPO: GRPO's advantage of each component, averaged over the k components. m = 1."""
    batch = _RewardBatch(rewards, groups, single=True)
    columns = [batch.standardised(batch.answers[:, i]).values for i in range(batch.dimensions)]
    values = np.mean(columns, axis=0)
    return Advantages(values, batch.diagnostics(batch.answers.mean(axis=1), values))


def maxrl(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """MaxRL: w*ᵀr, centred and divided by the group's mean instead of its deviation (arXiv 2602.02710). m = 1."""
    batch, config = _RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    scores = batch.answers @ batch.scalarization(config)
    mean = batch.group_mean(scores)
    values = np.where(batch.group_std(scores) < _FLAT, 0.0, (scores - mean) / (mean + config.epsilon))
    return Advantages(values, batch.diagnostics(scores, values))


def random_weighting(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """GRPO with one weighting w ~ Dir(α) for each group, unknown to the policy (arXiv 2605.22817, section 4). m = 1."""
    batch, config = _RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    drawn = draw_weightings(batch.count, 1, batch.dimensions, alpha=config.alpha, sampler=config.sampler, rng=rng)[:, 0]
    return batch.standardised(np.einsum("bk,bk->b", batch.answers, drawn[batch.index]))


def goal_conditioned(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """GRPO with the weighting in the group's prompt (arXiv 2605.22817, section 4). m = 1."""
    batch, config = _RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    expected = (batch.count, batch.dimensions)
    goals = np.asarray([] if config.goals is None else config.goals, dtype=np.float64)
    if goals.shape != expected:
        given = "none" if config.goals is None else f"shape {goals.shape}"
        raise InvalidInputError(
            f"goal_conditioned got goals of {given}: expected shape {expected}, the weighting in each group's prompt."
        )
    return batch.standardised(np.einsum("bk,bk->b", batch.answers, goals[batch.index]))


def multi_rlvr(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """Multi-RLVR: the sum of w*ᵀr over a rollout's answers, standardised (arXiv 2605.22817, section 4)."""
    batch, config = _RewardBatch(rewards, groups), config or EstimatorConfig()
    return batch.standardised((batch.rewards @ batch.scalarization(config)).sum(axis=1))


def vpo(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """VPO: (1/K) Σ_j max_s w_jᵀ r_s with w_1..w_K ~ Dir(α), standardised (arXiv 2605.22817, section 3).

    The inner maximum rewards a set of answers with a specialist for every trade-off. All rollouts of a group share the
    weightings, which makes them comparable (common random numbers). With m = 1 it is E_w[wᵀr].
    """
    batch, config = _RewardBatch(rewards, groups), config or EstimatorConfig()
    scores = np.empty(len(batch.rewards))
    for members, weightings in batch.weightings(config, rng):
        # (groups, rollouts × answers, k) @ (groups, k, K): one product for all groups of a size.
        flat = batch.rewards[members].reshape(len(members), -1, batch.dimensions)
        points = flat @ weightings.transpose(0, 2, 1)
        best = points.reshape(*members.shape, batch.rewards.shape[1], -1).max(axis=2)
        scores[members] = best.mean(axis=-1)
    return batch.standardised(scores)


def max_at_k(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """Max-at-K: each answer's share in E[max of κ answers] under w*, leave-one-out (Bagirov et al. 2025). m = 1."""
    batch, config = _RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    scalarization = batch.scalarization(config)
    shares = np.empty(len(batch.rewards))
    for members in batch.by_size:
        shares[members] = _leave_one_out(batch.answers[members] @ scalarization, _kappa(config, members.shape[1]))
    return batch.scaled(shares, config.norm)


def vector_max_at_k(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """Vector Max-at-K (ours): Max-at-K's credit under each of K weightings w ~ Dir(α), averaged over them. m = 1.

    Without normalisation the estimator is unbiased for ∇ E_w E[max of κ samples of wᵀr]. Every answer is credited for
    its contribution to the group's coverage, whereas VPO scores a whole set of answers.
    """
    batch, config = _RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    shares = np.empty(len(batch.rewards))
    for members, weightings in batch.weightings(config, rng):
        points = weightings @ batch.answers[members].transpose(0, 2, 1)  # (groups, K, n)
        shares[members] = _leave_one_out(points, _kappa(config, members.shape[1])).mean(axis=1)
    return batch.scaled(shares, config.norm)


ESTIMATORS: dict[str, Estimator] = {
    "grpo": grpo,
    "gdpo": gdpo,
    "maxrl": maxrl,
    "max_at_k": max_at_k,
    "random_weighting": random_weighting,
    "goal_conditioned": goal_conditioned,
    "multi_rlvr": multi_rlvr,
    "vpo": vpo,
    "vector_max_at_k": vector_max_at_k,
}
"""Every estimator by name."""

MULTI_ANSWER = frozenset({"multi_rlvr", "vpo"})
"""Estimators for rollouts with several answers; the others require m = 1."""


class _RewardBatch:
    """Validated rewards with the group statistics that the estimators share.

    Attributes:
        rewards: Shape (B, m, k).
        index: Shape (B,): position of each rollout's group among the sorted groups.
        count: Number of groups.
        dimensions: k.
        by_size: For every group size n, the rollouts of those groups, shape (groups of that size, n).
    """

    def __init__(self, rewards: FloatArray, groups: IntArray, *, single: bool = False) -> None:
        self.rewards = np.asarray(rewards, dtype=np.float64)
        _check(self.rewards, np.asarray(groups), single=single)
        self.dimensions = self.rewards.shape[2]
        _, index, sizes = np.unique(groups, return_inverse=True, return_counts=True)
        self.index: IntArray = index.reshape(-1)
        self.count, self._sizes = len(sizes), sizes
        order = np.argsort(self.index, kind="stable")
        starts = np.cumsum(sizes) - sizes
        self.by_size: list[IntArray] = [
            order[starts[sizes == size][:, None] + np.arange(size)] for size in np.unique(sizes)
        ]

    @property
    def answers(self) -> FloatArray:
        """The only answer of each rollout, shape (B, k)."""
        return self.rewards[:, 0]

    def scalarization(self, config: EstimatorConfig) -> FloatArray:
        """Return w*, shape (k,)."""
        if config.weights is None:
            return np.full(self.dimensions, 1.0 / self.dimensions)
        if len(config.weights) != self.dimensions:
            raise InvalidInputError(
                f"{len(config.weights)} weights for {self.dimensions} rewards: expected one for each."
            )
        return np.asarray(config.weights, dtype=np.float64)

    def weightings(self, config: EstimatorConfig, rng: np.random.Generator) -> list[tuple[IntArray, FloatArray]]:
        """Return, for every group size, the rollouts (g, n) and the groups' weightings (g, K, k)."""
        drawn = draw_weightings(
            self.count, config.draws, self.dimensions, alpha=config.alpha, sampler=config.sampler, rng=rng
        )
        return [(members, drawn[self.index[members[:, 0]]]) for members in self.by_size]

    def group_mean(self, scores: FloatArray) -> FloatArray:
        """Return each rollout's group mean, shape (B,)."""
        mean: FloatArray = (np.bincount(self.index, scores) / self._sizes)[self.index]
        return mean

    def group_std(self, scores: FloatArray) -> FloatArray:
        """Return each rollout's population standard deviation within its group, shape (B,)."""
        squares = np.bincount(self.index, (scores - self.group_mean(scores)) ** 2) / self._sizes
        std: FloatArray = np.sqrt(squares)[self.index]
        return std

    def standardised(self, scores: FloatArray) -> Advantages:
        """Return (score − mean) / std within each group; groups without differences get zeros."""
        std = self.group_std(scores)
        flat = std < _FLAT
        values = np.where(flat, 0.0, (scores - self.group_mean(scores)) / np.where(flat, 1.0, std))
        return Advantages(values, self.diagnostics(scores, values))

    def scaled(self, shares: FloatArray, norm: Norm) -> Advantages:
        """Return leave-one-out shares divided as ``norm`` says."""
        match norm:
            case Norm.GROUP_STD:
                scale = self.group_std(shares)
            case Norm.BATCH_STD:
                scale = np.full_like(shares, shares.std())
            case Norm.NONE:
                scale = np.ones_like(shares)
        # The shares of a group with equal vectors are rounding errors, which division would inflate.
        flat = self.group_std(shares) < _FLAT
        values = np.where(flat, 0.0, shares / np.where(flat, 1.0, scale))
        return Advantages(values, self.diagnostics(shares, values))

    def diagnostics(self, scores: FloatArray, values: FloatArray) -> dict[str, float]:
        """Return diagnostics of the batch."""
        busy = np.bincount(self.index, np.abs(values)) > 0
        return {
            "flat_groups": float(1.0 - busy.mean()),
            "score_mean": float(scores.mean()),
            "score_std": float((np.bincount(self.index, self.group_std(scores)) / self._sizes).mean()),
            "correlation": _largest_correlation(self.rewards.reshape(-1, self.dimensions)),
        }


def _check(rewards: FloatArray, groups: IntArray, *, single: bool) -> None:
    if rewards.ndim != 3 or 0 in rewards.shape:
        raise InvalidInputError(
            f"rewards have shape {rewards.shape}: expected (rollouts, answers, components), none of them 0."
        )
    if groups.shape != rewards.shape[:1]:
        raise InvalidInputError(f"groups have shape {groups.shape}: expected ({len(rewards)},), one for each rollout.")
    if not np.issubdtype(groups.dtype, np.integer):
        raise InvalidInputError(f"groups are {groups.dtype}: expected integers.")
    bad = ~((rewards >= 0.0) & (rewards <= 1.0))  # NaN is neither
    if bad.any():
        b, s, i = (int(axis[0]) for axis in np.nonzero(bad))
        raise InvalidInputError(
            f"reward {i} of answer {s} of rollout {b} is {rewards[b, s, i]}: expected a number in [0, 1].",
            remedy="Normalise rewards before training, or fix the evaluator that returned this one.",
        )
    if single and rewards.shape[1] != 1:
        raise InvalidInputError(
            f"rollouts have {rewards.shape[1]} answers: this estimator requires one.",
            remedy=f"For several answers use one of: {', '.join(sorted(MULTI_ANSWER))}.",
        )


def _kappa(config: EstimatorConfig, size: int) -> int:
    kappa = min(8, max(size // 2, 1)) if config.kappa is None else config.kappa
    if kappa > size - 1:
        raise InvalidInputError(
            f"kappa = {kappa} in a group of {size} answers: expected at most {size - 1}, since one answer is left out.",
            remedy="Choose a smaller kappa (between 2 and half the group), or larger groups.",
        )
    return kappa


def _leave_one_out(scores: FloatArray, kappa: int) -> FloatArray:
    """Return each answer's leave-one-out credit for the expected maximum of κ answers.

    The credit of answer i is E[max(x_i, max of a random (κ−1)-subset of the others)] − E[max of a random κ-subset of
    the others]: a baseline that does not depend on x_i, so that the policy gradient stays unbiased.

    Args:
        scores: Shape (..., n).
        kappa: κ, with 1 ≤ κ ≤ n − 1.
    """
    order = np.argsort(scores, axis=-1, kind="stable")
    ascending = np.take_along_axis(scores, order, axis=-1)
    shares = ascending @ _credit_matrix(scores.shape[-1], kappa).T
    result = np.empty_like(shares)
    np.put_along_axis(result, order, shares, axis=-1)
    return result


@lru_cache(maxsize=64)
def _credit_matrix(size: int, kappa: int) -> FloatArray:
    """Return the (n, n) matrix that maps ascending scores to the shares of the same ranks."""
    matrix = np.zeros((size, size))
    joined, left_out = comb(size - 1, kappa - 1), comb(size - 1, kappa)
    for rank in range(size):
        matrix[rank, rank] = comb(rank, kappa - 1) / joined
        for other in range(size):
            if other == rank:
                continue
            if other > rank and kappa >= 2:
                matrix[rank, other] += comb(other - 1, kappa - 2) / joined
            below = other - (other > rank)
            matrix[rank, other] -= comb(below, kappa - 1) / left_out
    matrix.setflags(write=False)
    return matrix


def _largest_correlation(vectors: FloatArray) -> float:
    varying = vectors[:, vectors.std(axis=0) > _FLAT]
    if varying.shape[1] < 2:
        return 0.0
    matrix: FloatArray = np.atleast_2d(np.corrcoef(varying, rowvar=False))
    return float(matrix[np.triu_indices(len(matrix), 1)].max())
