"""Keep a policy's earlier answers as parents for mutation prompts."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from speciate.domain.candidate import Individual

_LARGEST: Final = 32


class TrainingPopulations:
    """Distinct answers with their rewards, for the most recent problems.

    Args:
        remembered: Problems to keep; the least recent one is dropped first.
    """

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
        if len(members) > _LARGEST:
            del members[next(iter(members))]
        if len(self._members) > self._remembered:
            self._members.popitem(last=False)

    def draw(self, rng: np.random.Generator) -> tuple[int, Individual]:
        """Return a problem with a parent: its best answer under a random weighting."""
        problem = list(self._members)[int(rng.integers(len(self._members)))]
        members = list(self._members[problem].items())
        rewards: NDArray[np.float64] = np.array([vector for _, vector in members])
        best = int(np.argmax(rewards @ rng.dirichlet(np.ones(rewards.shape[1]))))
        return problem, Individual(1, *members[best])

    def state(self) -> list[Any]:
        """Return everything as JSON values."""
        return [[problem, list(members.items())] for problem, members in self._members.items()]

    def restore(self, state: list[Any]) -> None:
        """Restore the result of ``state``."""
        self._members = OrderedDict(
            (problem, {answer: tuple(rewards) for answer, rewards in members}) for problem, members in state
        )
