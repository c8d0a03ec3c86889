"""Handle the rewards of rollouts: stack a batch into one array, measure it, and keep answers as later parents."""

from collections import OrderedDict
from collections.abc import Sequence
from math import isnan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speciate.domain.arrays import FloatArray
from speciate.domain.candidate import Individual
from speciate.tournaments.statistics.estimators import diversity
from speciate.training.reward_batch import correlations

_WEIGHTINGS = 32
_MOST_MEMBERS = 32


def stack_rollouts(
    rollouts: Sequence[Sequence[Sequence[float]]], *, answers: int, dimensions: int
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Return the rewards of rollouts as one array (B, m, k), padded with zero rows, and which are there, (B, m).

    Every rollout has the reward vectors of its answers in order; those beyond ``answers`` are dropped. A problem may
    have fewer rewards than its task: the zeros for the others scale all scores of a group equally, and the group's
    normalisation cancels the factor, since the direction of the first components of a symmetric Dirichlet draw does not
    depend on their share of the whole. Without that normalisation they shrink advantages: with ``gdpo`` and ``pkpo``,
    and with another ``norm`` than the group's.
    """
    rewards = np.zeros((len(rollouts), answers, dimensions))
    answered = np.zeros((len(rollouts), answers), dtype=np.bool_)
    for b, rollout in enumerate(rollouts):
        for s, vector in enumerate(rollout[:answers]):
            rewards[b, s, : len(vector)] = vector
            answered[b, s] = True
    return rewards, answered


def measure(
    rewards: FloatArray, answered: NDArray[np.bool_], scratch: NDArray[np.bool_], group: int, rng: np.random.Generator
) -> dict[str, float]:
    """Return measurements of the rollouts, (B,), to watch a training; ``group`` in a row have one prompt.

    Documented in ``docs/howto/train-on-your-data.md``. A kind of rollout that did not occur has no entry.
    """
    present = rewards[answered]
    pairs = correlations(present[:, np.ptp(present, axis=0) > 0]) if len(present) else np.zeros(0)
    measures = {"correlation": float(pairs.max()) if len(pairs) else 0.0}
    if not scratch.all():
        measures["mutation_mean"] = float(rewards[~scratch, 0].mean())
    if not scratch.any():
        return measures
    _, m, k = rewards.shape
    weightings = rng.dirichlet(np.ones(k), size=_WEIGHTINGS)
    answers = rewards[scratch].reshape(-1, group * m, k)
    # Of the answers that exist: zeros for missing ones would look like diversity. NaN if there are fewer than two.
    prompts = zip(answers, answered[scratch].reshape(-1, group * m), strict=True)
    distances = [distance for prompt in prompts if not isnan(distance := diversity(*prompt)[1])]
    return measures | {
        "mean": float(answers.mean()),
        "best": float(answers.mean(axis=2).max(axis=1).mean()),
        "best_weighted": float((answers @ weightings.T).max(axis=1).mean()),
        "diversity": float(np.mean(distances or [0.0])),
        "answered": float(answered[scratch].mean()),
    }


class TrainingPopulations:
    """Distinct answers with their rewards, for the most recent problems."""

    def __init__(self, remembered: int) -> None:
        self._remembered = remembered
        self._members: OrderedDict[int, dict[str, tuple[float, ...]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, problem: int, answer: str, rewards: tuple[float, ...]) -> None:
        """Add an answer unless all of its rewards are 0 or all are 1: neither can teach an improvement."""
        if max(rewards) <= 0 or min(rewards) >= 1:
            return
        members = self._members.setdefault(problem, {})
        self._members.move_to_end(problem)
        members[answer] = rewards
        if len(members) > _MOST_MEMBERS:
            del members[next(iter(members))]
        if len(self._members) > self._remembered:
            self._members.popitem(last=False)

    def forget(self, problem: int) -> None:
        self._members.pop(problem, None)

    def draw(self, rng: np.random.Generator) -> tuple[int, Individual]:
        """Return a problem with a parent: its best answer under a random weighting."""
        problem = list(self._members)[int(rng.integers(len(self._members)))]
        members = list(self._members[problem].items())
        rewards: NDArray[np.float64] = np.array([vector for _, vector in members])
        best = int(np.argmax(rewards @ rng.dirichlet(np.ones(rewards.shape[1]))))
        return problem, Individual(1, *members[best])

    def state(self) -> list[Any]:
        return [[problem, list(members.items())] for problem, members in self._members.items()]

    def restore(self, state: list[Any]) -> None:
        self._members = OrderedDict(
            (problem, {answer: tuple(rewards) for answer, rewards in members}) for problem, members in state
        )
