"""Advantage estimators: map the rewards of a prompt group to one number for each rollout.

``ESTIMATORS`` lists them. A *group* is the set of rollouts of one prompt. Rewards lie in [0, 1], higher is better; a
positive advantage makes a rollout more likely.

Sources: Bahlous-Boldi et al., "Vector Policy Optimization", arXiv 2605.22817 (VPO and its baselines); Shao et al.,
"DeepSeekMath", arXiv 2402.03300, section 4 (GRPO); arXiv 2602.02710 (MaxRL); Bagirov et al. 2025 (Max-at-K); arXiv
2601.16175 (entropic); Walder and Karkhanis, "Pass@K Policy Optimization", arXiv 2505.15201, section 4 (PKPO with the
k−1 leave-one-out baseline); Liu et al., arXiv 2503.20783 (Dr. GRPO, with which it is blended); arXiv 2605.07039
(PACEvolve++: PKPO's share rises from 0 to 0.8 over 200 steps). Vector Max-at-K is an instance of
marginal set credit (Poly-EPO, arXiv 2604.17654; SetPO, arXiv 2602.01062) for the best of wᵀr in closed form:
``docs/evidence/vector-max-at-k.md``. Multi-RLVR comes from Multi-Answer RL (arXiv 2603.24844).
"""

from collections.abc import Callable
from functools import lru_cache, partial
from math import comb
from typing import Final

import numpy as np

from speciate.domain.arrays import FloatArray, IntArray
from speciate.domain.errors import InvalidInputError
from speciate.domain.learning import LearningEstimator
from speciate.training.entropic import entropic
from speciate.training.reward_batch import EstimatorConfig, RewardBatch

Formula = Callable[[RewardBatch, EstimatorConfig, np.random.Generator], FloatArray]
"""Function of checked rewards; ``ESTIMATORS`` checks them."""


def grpo(batch: RewardBatch, config: EstimatorConfig, rng: np.random.Generator) -> FloatArray:
    """GRPO: the fixed scalarization w*ᵀr, standardised within the group (arXiv 2402.03300, section 4.1). m = 1."""
    return batch.standardised(batch.answers @ batch.scalarization(config))


def gdpo(batch: RewardBatch, config: EstimatorConfig, rng: np.random.Generator) -> FloatArray:
    """GDPO: GRPO's advantage of each component, averaged over the k components by the weights w*. m = 1.

    The standardisation of these sums over the batch (arXiv 2601.05242) is left out.
    """
    weights = batch.scalarization(config)
    columns = [batch.standardised(batch.answers[:, i]) for i in range(batch.dimensions)]
    values: FloatArray = np.average(columns, axis=0, weights=weights)
    return values


def maxrl(batch: RewardBatch, config: EstimatorConfig, rng: np.random.Generator) -> FloatArray:
    """MaxRL: w*ᵀr, centred and divided by the group's mean instead of its deviation (arXiv 2602.02710). m = 1."""
    scores = batch.answers @ batch.scalarization(config)
    mean = batch.group_mean(scores)
    return batch.unscaled(scores, (scores - mean) / (mean + config.epsilon))


def random_weighting(batch: RewardBatch, config: EstimatorConfig, rng: np.random.Generator) -> FloatArray:
    """GRPO with one weighting w ~ Dir(α) for each group, unknown to the policy (arXiv 2605.22817, section 4). m = 1."""
    drawn = rng.dirichlet(np.full(batch.dimensions, config.alpha), batch.count)
    return batch.standardised(np.einsum("bk,bk->b", batch.answers, drawn[batch.index]))


def multi_rlvr(batch: RewardBatch, config: EstimatorConfig, rng: np.random.Generator) -> FloatArray:
    """Multi-RLVR: the sum of w*ᵀr over a rollout's answers, standardised (arXiv 2605.22817, section 4)."""
    return batch.standardised((batch.rewards @ batch.scalarization(config)).sum(axis=1))


def vpo(batch: RewardBatch, config: EstimatorConfig, rng: np.random.Generator) -> FloatArray:
    """VPO: (1/K) Σ_j max_s w_jᵀ r_s with w_1..w_K ~ Dir(α), standardised (arXiv 2605.22817, section 3).

    The inner maximum rewards a set of answers with a specialist for every trade-off. All rollouts of a group share the
    weightings, which makes them comparable (common random numbers). With m = 1 it is E_w[wᵀr].
    """
    scores = np.empty(len(batch.rewards))
    for members, weightings in batch.weightings(config, rng):
        # (groups, rollouts × answers, k) @ (groups, k, K): one product for all groups of a size.
        flat = batch.rewards[members].reshape(len(members), -1, batch.dimensions)
        points = flat @ weightings.transpose(0, 2, 1)
        best = points.reshape(*members.shape, batch.rewards.shape[1], -1).max(axis=2)
        scores[members] = best.mean(axis=-1)
    return batch.standardised(scores)


def max_at_k(batch: RewardBatch, config: EstimatorConfig, rng: np.random.Generator) -> FloatArray:
    """Max-at-K: each answer's share in E[max of κ answers] under w*, leave-one-out (Bagirov et al. 2025). m = 1."""
    scores = batch.answers @ batch.scalarization(config)
    shares = np.empty(len(batch.rewards))
    for members in batch.by_size:
        shares[members] = leave_one_out(scores[members], choose_kappa(config, members.shape[1]))
    return batch.scaled(scores, shares, config.norm)


def vector_max_at_k(batch: RewardBatch, config: EstimatorConfig, rng: np.random.Generator) -> FloatArray:
    """Vector Max-at-K (ours): Max-at-K's credit under each of K weightings w ~ Dir(α), averaged over them. m = 1.

    Without normalisation the estimator is unbiased for ∇ E_w E[max of κ samples of wᵀr]. Every answer is credited for
    its contribution to the group's coverage, whereas VPO scores a whole set of answers.
    """
    shares = np.empty(len(batch.rewards))
    for members, weightings in batch.weightings(config, rng):
        points = weightings @ batch.answers[members].transpose(0, 2, 1)  # (groups, K, n)
        shares[members] = leave_one_out(points, choose_kappa(config, members.shape[1])).mean(axis=1)
    return batch.scaled(batch.answers.max(axis=1), shares, config.norm)


def pkpo(batch: RewardBatch, config: EstimatorConfig, rng: np.random.Generator) -> FloatArray:
    """PKPO of w*ᵀr with share α beside Dr. GRPO with 1 − α. m = 1.

    An answer's PKPO value is (κ/n) · E[max(x_i, max S) − max S] over the random (κ−1)-subsets S of the others; with
    κ = 1 it is x_i minus the mean of the others, over n. Dr. GRPO is x_i minus the mean of the group, undivided.
    """
    scores = batch.answers @ batch.scalarization(config)
    share = annealed_share(config)
    values = (1.0 - share) * (scores - batch.group_mean(scores))
    for members in batch.by_size:
        size = members.shape[1]
        kappa = choose_kappa(config, size)
        values[members] += share * kappa / size * leave_one_out(scores[members], kappa, max(kappa - 1, 1))
    return batch.unscaled(scores, values)


def annealed_share(config: EstimatorConfig) -> float:
    """Return α, the share of PKPO at the configuration's step."""
    return config.blend * (min(1.0, config.step / config.anneal) if config.anneal else 1.0)


def choose_kappa(config: EstimatorConfig, size: int) -> int:
    kappa = min(8, max(size // 2, 1)) if config.kappa is None else config.kappa
    if kappa > size - 1:
        raise InvalidInputError(
            f"kappa = {kappa} in a group of {size} answers: expected at most {size - 1}, since one answer is left out.",
            remedy="Choose a smaller kappa (between 2 and half the group), or larger groups.",
        )
    return kappa


def leave_one_out(scores: FloatArray, kappa: int, baseline: int | None = None) -> FloatArray:
    """Return each answer's leave-one-out credit for the expected maximum of κ answers; scores have shape (..., n).

    The credit of answer i is E[max(x_i, max of a random (κ−1)-subset of the others)] − E[max of a random b-subset of
    the others]: a baseline that does not depend on x_i, so that the policy gradient stays unbiased. 1 ≤ κ, b ≤ n − 1;
    without ``baseline``, b is κ.
    """
    order = np.argsort(scores, axis=-1, kind="stable")
    ascending = np.take_along_axis(scores, order, axis=-1)
    shares = ascending @ _credit_matrix(scores.shape[-1], kappa, kappa if baseline is None else baseline).T
    result = np.empty_like(shares)
    np.put_along_axis(result, order, shares, axis=-1)
    return result


@lru_cache(maxsize=64)
def _credit_matrix(size: int, kappa: int, baseline: int) -> FloatArray:
    """Return the (n, n) matrix that maps ascending scores to the shares of the same ranks."""
    joined, left_out, ranks = comb(size - 1, kappa - 1), comb(size - 1, baseline), range(size)
    own = np.array([comb(rank, kappa - 1) / joined for rank in ranks])
    joins = np.array([comb(rank - 1, kappa - 2) / joined if rank and kappa > 1 else 0.0 for rank in ranks])
    leaves = np.array([comb(rank, baseline - 1) / left_out for rank in ranks])
    above = np.tri(size, k=-1).T  # ranks above one that is left out are one lower among the others
    matrix: FloatArray = np.diag(own) + above * (joins - np.roll(leaves, 1)) - above.T * leaves
    matrix.setflags(write=False)
    return matrix


def _estimate(
    formula: Formula,
    rewards: FloatArray,
    groups: IntArray,
    *,
    config: EstimatorConfig | None = None,
    rng: np.random.Generator,
) -> FloatArray:
    """Check rewards, shape (B, m, k), in [0, 1], with zeros for missing answers, and return their advantages.

    ``groups`` (B,) are the groups of the rollouts, any integers. Without ``config`` the papers' defaults apply.
    """
    batch = RewardBatch(rewards, groups, single=not LearningEstimator(formula.__name__).takes_sets)
    return formula(batch, config or EstimatorConfig(), rng)


ESTIMATORS: Final = {
    each.__name__: partial(_estimate, each)
    for each in (
        grpo, gdpo, maxrl, max_at_k, random_weighting, multi_rlvr, vpo, vector_max_at_k, entropic, pkpo,
    )
}  # fmt: skip
"""Every estimator by name: a function of rewards, groups, ``config`` and ``rng``."""
