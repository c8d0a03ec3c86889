"""What is watched during training, from the rewards of one batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from speciate.training.rollouts import RolloutRewards

_DRAWS = 32


def measure(
    batch: RolloutRewards, groups: NDArray[np.int64], scratch: NDArray[np.bool_], rng: np.random.Generator
) -> dict[str, float]:
    """Return measurements of the rollouts that were written from scratch.

    Args:
        batch: Rewards, shape (B, m, k).
        groups: Shape (B,): rollouts of one prompt share a number.
        scratch: Shape (B,): whether a rollout was asked for from scratch.
        rng: Draws weightings.

    Returns:
        ``mean`` (mean reward of an answer, missing ones count as 0), ``best`` (best mean reward among a prompt's
        answers), ``best_weighted`` (E_w of the best weighted reward, w ~ Dir(1)), ``diversity`` (mean pairwise L1
        distance between the rewards of a prompt's answers), ``answered`` (share of answers that were there, readable
        and no repeat), ``mutation_mean`` (mean reward of changes). Absent where there was no such rollout.
    """
    found: dict[str, float] = {}
    if not scratch.all():
        found["mutation_mean"] = float(batch.rewards[~scratch, 0].mean())
    numbers = np.unique(groups[scratch])
    if not len(numbers):
        return found
    weightings = rng.dirichlet(np.ones(batch.rewards.shape[2]), size=_DRAWS)
    best, weighted, diversity = [], [], []
    for number in numbers:
        answers = batch.rewards[groups == number].reshape(-1, batch.rewards.shape[2])
        best.append(answers.mean(axis=1).max())
        weighted.append((answers @ weightings.T).max(axis=0).mean())
        diversity.append(
            np.abs(answers[:, None] - answers[None]).sum(axis=2).sum() / (len(answers) * (len(answers) - 1))
        )
    found |= {
        "mean": float(batch.rewards[scratch].mean()),
        "best": float(np.mean(best)),
        "best_weighted": float(np.mean(weighted)),
        "diversity": float(np.mean(diversity)),
        "answered": float(batch.answered[scratch].mean()),
    }
    return found
