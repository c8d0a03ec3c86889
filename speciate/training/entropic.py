"""Entropic objective of TTT-Discover: weigh the answers of a group exponentially by their rewards.

Source: Yuksekgonul et al., "Learning to Discover at Test Time", arXiv 2601.16175, section 3. The gradient of
J_β = log E[exp(βR)] weighs an answer with exp(βr_i) / E[exp(βr)]; the advantage is that weight minus 1.
"""

from math import log
from typing import Final

import numpy as np

from speciate.domain.arrays import FloatArray
from speciate.domain.errors import InvalidInputError
from speciate.training.reward_batch import EstimatorConfig, RewardBatch

_BISECTIONS: Final = 60
_MOST: Final = 60.0
"""Largest β times the range of a group: exp(−60) no longer changes a sum of doubles."""


def entropic(batch: RewardBatch, config: EstimatorConfig, rng: np.random.Generator) -> FloatArray:
    """Entropic advantages w_i − 1 with w_i = exp(βr_i) / mean_{j≠i} exp(βr_j) and r = w*ᵀr. m = 1.

    β is set in every group so that KL(softmax(βr) ‖ uniform) = ``entropic_kl``: the objective then does not depend on
    the scale of the rewards. Where half the group or more holds the maximum, no β reaches ln 2, and β is the largest.
    A group needs 3 answers: with 2, the better one's weight would have no bound. For the same reason ``entropic_kl``
    must be less than ln n, the divergence of a softmax that weighs one of n answers only.
    """
    scores = batch.answers @ batch.scalarization(config)
    values = np.zeros(len(scores))
    for members in batch.by_size:
        size = members.shape[1]
        if size < 3:
            raise InvalidInputError(f"a group has {size} answers: entropic expects at least 3; ask for more.")
        if config.entropic_kl >= log(size):
            raise InvalidInputError(
                f"entropic_kl = {config.entropic_kl} in a group of {size} answers: expected less than {log(size):.4g}"
                f" nats, ln {size}.",
                remedy="Choose a smaller entropic_kl, or ask for more answers per prompt.",
            )
        weights = np.exp(_exponents(scores[members], config.entropic_kl))
        # Beside the best answer's weight, 1, the sum of the others may be too small to be a difference.
        rest = np.sort(weights, axis=1)[:, :-1].sum(axis=1, keepdims=True)
        others = np.where(weights == 1.0, rest, weights.sum(axis=1, keepdims=True) - weights) / (size - 1)
        values[members] = weights / others - 1.0
    return batch.unscaled(scores, values)


def _exponents(scores: FloatArray, target: float) -> FloatArray:
    """Return β(r − max r) of every group, shape (groups, n), with β found by bisection."""
    below = scores - scores.max(axis=1, keepdims=True)
    spread = -below.min(axis=1, keepdims=True)
    below = below / np.where(spread == 0.0, 1.0, spread)
    low, high = np.zeros_like(spread), np.full_like(spread, _MOST)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        exceeds = _divergence(middle * below) > target
        low, high = np.where(exceeds, low, middle), np.where(exceeds, middle, high)
    exponents: FloatArray = low * below
    return exponents


def _divergence(exponents: FloatArray) -> FloatArray:
    """Return KL(softmax ‖ uniform) in nats, shape (groups, 1); it grows with β."""
    weights = np.exp(exponents)
    total = weights.sum(axis=1, keepdims=True)
    mean = (weights * exponents).sum(axis=1, keepdims=True) / total
    divergence: FloatArray = mean - np.log(total) + np.log(exponents.shape[1])
    return divergence
