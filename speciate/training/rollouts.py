"""Rewards of a batch of rollouts as one array, whatever the rollouts hold."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speciate.domain.errors import InvalidInputError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RolloutRewards:
    """Rewards of B rollouts with at most m answers of k components.

    Attributes:
        rewards: Shape (B, m, k), in [0, 1], higher is better; rows without an answer are zero.
        answered: Shape (B, m), False where a row stands for no answer: the rollout was short or unreadable, or the
            answer repeated an earlier one of its rollout.
    """

    rewards: FloatArray
    answered: NDArray[np.bool_]


def stack_rollouts(
    rollouts: Sequence[Sequence[Sequence[float]]],
    *,
    answers: int,
    dimensions: int,
    keys: Sequence[Sequence[Hashable]] | None = None,
) -> RolloutRewards:
    """Return the rewards of rollouts as one array, padded with zero rows.

    Args:
        rollouts: For each rollout, the reward vectors of its answers in order; an unreadable one has none. Answers
            beyond ``answers`` are left out.
        answers: m.
        dimensions: k.
        keys: For each answer, what makes it the same as another (its text, the shape of its program). Repeats within a
            rollout become zero rows: saying a thing twice earns nothing.

    Raises:
        InvalidInputError: A reward vector has another length than k, or keys do not fit.
    """
    if answers < 1 or dimensions < 1:
        raise InvalidInputError(
            f"rollouts of {answers} answers with {dimensions} rewards: expected at least 1 of each."
        )
    rewards = np.zeros((len(rollouts), answers, dimensions))
    answered = np.zeros((len(rollouts), answers), dtype=np.bool_)
    for b, rollout in enumerate(rollouts):
        seen: set[Hashable] = set()
        for s, vector in enumerate(rollout[:answers]):
            if len(vector) != dimensions:
                raise InvalidInputError(
                    f"answer {s} of rollout {b} has {len(vector)} rewards: expected {dimensions}, as in all others."
                )
            if keys is not None:
                if keys[b][s] in seen:
                    continue
                seen.add(keys[b][s])
            rewards[b, s] = vector
            answered[b, s] = True
    return RolloutRewards(rewards, answered)
