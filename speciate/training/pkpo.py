"""PKPO: policy gradient of the scalar max@k, blended with Dr. GRPO.

Sources: Walder and Karkhanis, "Pass@K Policy Optimization", arXiv 2505.15201, section 4 (the k−1 leave-one-out
baseline); Liu et al., arXiv 2503.20783 (Dr. GRPO); arXiv 2605.07039 (PACEvolve++: the share of PKPO rises from 0 to
0.8 over 200 steps).
"""

from __future__ import annotations

import numpy as np

from speciate.training.leave_one_out import choose_kappa, leave_one_out
from speciate.training.reward_batch import Advantages, EstimatorConfig, FloatArray, IntArray, RewardBatch


def pkpo(
    rewards: FloatArray, groups: IntArray, *, config: EstimatorConfig | None = None, rng: np.random.Generator
) -> Advantages:
    """PKPO of w*ᵀr with share α beside Dr. GRPO with 1 − α. m = 1.

    An answer's PKPO value is (κ/n) · E[max(x_i, max S) − max S] over the random (κ−1)-subsets S of the others; with
    κ = 1 it is x_i minus the mean of the others, over n. Dr. GRPO is x_i minus the mean of the group, undivided.
    """
    batch, config = RewardBatch(rewards, groups, single=True), config or EstimatorConfig()
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
