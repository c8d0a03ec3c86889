"""Advantage estimators: map the rewards of a prompt group to one number for each rollout.

All take the same arguments and return ``Advantages``; ``ESTIMATORS`` lists them. A *group* is the set of rollouts of
one prompt. Rewards lie in [0, 1], higher is better; a positive advantage makes a rollout more likely.

Sources: Bahlous-Boldi et al., "Vector Policy Optimization", arXiv 2605.22817 (VPO and its baselines); Shao et al.,
"DeepSeekMath", arXiv 2402.03300, section 4 (GRPO); arXiv 2602.02710 (MaxRL); Bagirov et al. 2025 (Max-at-K); arXiv
2601.16175 (entropic); arXiv 2505.15201 (PKPO). Vector Max-at-K is ours: ``docs/evidence/vector-max-at-k.md``.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from speciate.domain.errors import InvalidInputError
from speciate.training.entropic import entropic
from speciate.training.leave_one_out import choose_kappa, leave_one_out
from speciate.training.pkpo import pkpo
from speciate.training.reward_batch import Advantages, EstimatorConfig, FloatArray, IntArray, RewardBatch
from speciate.training.weightings import draw_weightings


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
    batch, config = RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    return batch.standardised(batch.answers @ batch.scalarization(config))


def gdpo(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """GDPO: GRPO's advantage of each component, averaged over the k components by the weights w*. m = 1.

    The standardisation of these sums over the batch (arXiv 2601.05242) is left out.
    """
    batch, config = RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    weights = batch.scalarization(config)
    columns = [batch.standardised(batch.answers[:, i]).values for i in range(batch.dimensions)]
    values = np.average(columns, axis=0, weights=weights)
    return Advantages(values, batch.diagnostics(batch.answers @ weights, values))


def maxrl(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """MaxRL: w*ᵀr, centred and divided by the group's mean instead of its deviation (arXiv 2602.02710). m = 1."""
    batch, config = RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    scores = batch.answers @ batch.scalarization(config)
    mean = batch.group_mean(scores)
    values = np.where(batch.flat(scores), 0.0, (scores - mean) / (mean + config.epsilon))
    return Advantages(values, batch.diagnostics(scores, values))


def random_weighting(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """GRPO with one weighting w ~ Dir(α) for each group, unknown to the policy (arXiv 2605.22817, section 4). m = 1."""
    batch, config = RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    drawn = draw_weightings(batch.count, 1, batch.dimensions, alpha=config.alpha, sampler=config.sampler, rng=rng)[:, 0]
    return batch.standardised(np.einsum("bk,bk->b", batch.answers, drawn[batch.index]))


def goal_conditioned(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """GRPO with the weighting in the group's prompt (arXiv 2605.22817, section 4). m = 1."""
    batch, config = RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    expected = (batch.count, batch.dimensions)
    goals = np.asarray([] if config.goals is None else config.goals, dtype=np.float64)
    if goals.shape != expected:
        actual = "none" if config.goals is None else f"shape {goals.shape}"
        raise InvalidInputError(
            f"goal_conditioned got goals of {actual}: expected shape {expected}, the weighting in each group's prompt."
        )
    return batch.standardised(np.einsum("bk,bk->b", batch.answers, goals[batch.index]))


def multi_rlvr(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """Multi-RLVR: the sum of w*ᵀr over a rollout's answers, standardised (arXiv 2605.22817, section 4)."""
    batch, config = RewardBatch(rewards, groups), config or EstimatorConfig()
    return batch.standardised((batch.rewards @ batch.scalarization(config)).sum(axis=1))


def vpo(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """VPO: (1/K) Σ_j max_s w_jᵀ r_s with w_1..w_K ~ Dir(α), standardised (arXiv 2605.22817, section 3).

    The inner maximum rewards a set of answers with a specialist for every trade-off. All rollouts of a group share the
    weightings, which makes them comparable (common random numbers). With m = 1 it is E_w[wᵀr].
    """
    batch, config = RewardBatch(rewards, groups), config or EstimatorConfig()
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
    batch, config = RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    scores = batch.answers @ batch.scalarization(config)
    shares = np.empty(len(batch.rewards))
    for members in batch.by_size:
        shares[members] = leave_one_out(scores[members], choose_kappa(config, members.shape[1]))
    return batch.scaled(scores, shares, config.norm)


def vector_max_at_k(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """Vector Max-at-K (ours): Max-at-K's credit under each of K weightings w ~ Dir(α), averaged over them. m = 1.

    Without normalisation the estimator is unbiased for ∇ E_w E[max of κ samples of wᵀr]. Every answer is credited for
    its contribution to the group's coverage, whereas VPO scores a whole set of answers.
    """
    batch, config = RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
    shares = np.empty(len(batch.rewards))
    for members, weightings in batch.weightings(config, rng):
        points = weightings @ batch.answers[members].transpose(0, 2, 1)  # (groups, K, n)
        shares[members] = leave_one_out(points, choose_kappa(config, members.shape[1])).mean(axis=1)
    return batch.scaled(batch.answers.max(axis=1), shares, config.norm)


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
    "entropic": entropic,
    "pkpo": pkpo,
}
"""Every estimator by name."""

MULTI_ANSWER = frozenset({"multi_rlvr", "vpo"})
"""Estimators for rollouts with several answers; the others require m = 1."""
