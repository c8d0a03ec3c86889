"""What a task is: problems to train and to test on, the same ones that the service searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Final, Protocol

import numpy as np

from speciate.domain.problem import Problem
from speciate.domain.values import digest_of, text_digest

Content = dict[str, object]


class Split(StrEnum):
    """Which problems: no problem is in both."""

    TRAIN = "train"
    TEST = "test"


class Task(Protocol):
    """Problems that share their rewards, and a trusted way to score many candidates."""

    @property
    def name(self) -> str:
        """Its key in ``GENERATED`` or ``DATASETS``."""
        ...

    @property
    def rewards(self) -> tuple[str, ...]:
        """Names of the k rewards, each in [0, 1], higher is better. A problem has all of them, or the first few."""
        ...

    @property
    def answers(self) -> int:
        """How many answers the methods with several in one rollout ask for, m."""
        ...

    @property
    def max_tokens(self) -> int:
        """Longest answer in tokens."""
        ...

    @property
    def codec(self) -> str | None:
        """Codec in which tiny models are asked; None means English."""
        ...

    def problems(self, split: Split, count: int, *, start: int = 0) -> Iterator[Problem]:
        """Yield problems ``start`` to ``start + count`` of a split; the same ones in every call.

        Raises:
            InvalidInputError: The split has fewer.
        """
        ...

    def score(self, batch: Sequence[tuple[Problem, Sequence[str]]]) -> list[list[tuple[float, ...]]]:
        """Return the rewards of every candidate, one for each of its problem's rewards; all zero for one that fails.

        Raises:
            EvaluatorUnavailableError: Candidates have to be run and nothing here contains them.
        """
        ...


class GeneratedTask(Task, Protocol):
    """A task whose policies are trained from nothing: it can also show how candidates look."""

    def vocabulary(self) -> tuple[str, ...]:
        """Return all tokens of prompts and answers."""
        ...

    def demonstrate(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a valid candidate that is good at some rewards, seldom at all it could be."""
        ...

    def improve(self, problem: Problem, rng: np.random.Generator) -> tuple[str, str] | None:
        """Return a candidate with a child that is one edit away and better in some reward; None when none was found."""
        ...


_PARITY: Final = {Split.TRAIN: 1, Split.TEST: 0}


def drawn_problems(
    task: str, split: Split, count: int, start: int, draw: Callable[[np.random.Generator], Content]
) -> Iterator[tuple[int, Content]]:
    """Yield numbered contents of a split.

    A content belongs to one split by the parity of its digest, so that no problem can be in both whatever is drawn.
    Every number has a generator of its own: problem 7 is the same whether or not problem 6 was asked for.

    Args:
        task: Name of the task.
        split: Which side.
        count: How many.
        start: Number of the first.
        draw: Makes the content of a problem.
    """
    for number in range(start, start + count):
        rng = np.random.default_rng([int(text_digest(f"{task}/{split}")[:8], 16), number])
        content = draw(rng)
        while int(digest_of(content)[-1], 16) % 2 != _PARITY[split]:
            content = draw(rng)
        yield number, content
