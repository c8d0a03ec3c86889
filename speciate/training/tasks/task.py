"""Interface of a training task: problems for training and testing, in the form that the service searches."""

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any, Protocol

import numpy as np

from speciate.domain.errors import InvalidInputError, SpeciateError, invalid
from speciate.domain.problem import Problem
from speciate.domain.values import digest_of, text_digest
from speciate.problems.definition import examine

Content = dict[str, Any]


class Split(StrEnum):
    """Split of a task's problems; no problem is in both."""

    TRAIN = "train"
    TEST = "test"


class Task(Protocol):
    """Problems with the same rewards, and a trusted scorer of many candidates."""

    @property
    def name(self) -> str: ...

    @property
    def rewards(self) -> tuple[str, ...]:
        """Names of the k rewards, each in [0, 1], higher is better. A problem has all of them, or the first few."""

    @property
    def answers(self) -> int:
        """m, the answers per rollout for methods with several."""

    @property
    def max_tokens(self) -> int:
        """Longest answer in tokens."""

    @property
    def codec(self) -> str | None:
        """Codec of prompts for tiny models; None means English."""

    def problems(self, split: Split, count: int, *, start: int = 0) -> Iterator[Problem]:
        """Yield problems ``start`` to ``start + count`` of a split; the same ones in every call."""

    def score(self, batch: Sequence[tuple[Problem, Sequence[str]]]) -> list[list[tuple[float, ...]]]:
        """Return the reward vector of every candidate; all zeros if the candidate fails.

        ``EvaluatorUnavailableError``: candidates must be executed and no sandbox is available.
        """


@contextmanager
def located(what: str) -> Iterator[None]:
    """Raise ``InvalidInputError``, which begins with ``what``, with the place of any other error of a task's code."""
    try:
        yield
    except SpeciateError:
        raise
    except Exception as error:
        at = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{what}: {type(error).__name__}: {error} ({at.filename}, line {at.lineno})."
        raise InvalidInputError(message) from error


def problems_of(task: Task, split: Split, count: int, *, start: int = 0) -> list[Problem]:
    """Return a task's problems, as many as it has of ``count``.

    ``InvalidInputError``: it has none, or the service would refuse one.
    """
    with located(f"problems of task {task.name!r}"):
        problems = list(task.problems(split, count, start=start))
    if not problems:
        raise InvalidInputError(f"task {task.name!r} has no problems from number {start} on in split {split.value!r}.")
    # Problems with one evaluator seldom differ in their mistakes, and checking thousands takes half a minute.
    for problem in {problem.evaluator: problem for problem in problems}.values():
        if field_errors := examine(problem.model_dump(mode="json"))[1]:
            raise invalid(f"problem {problem.slug!r} of task {task.name!r}", field_errors)
    return problems


def scores_of(task: Task, batch: Sequence[tuple[Problem, Sequence[str]]]) -> list[list[tuple[float, ...]]]:
    """Return the rewards of ``task.score``, checked: one vector for each answer, every number in [0, 1]."""
    with located(f"score of task {task.name!r}"):
        scores = task.score(batch)
        for (problem, answers), vectors in zip(batch, scores, strict=True):
            names = task.rewards[: len(problem.space.selected)]
            for answer, vector in zip(answers, vectors, strict=True):
                if len(vector) != len(names) or not all(0.0 <= reward <= 1.0 for reward in vector):
                    raise InvalidInputError(
                        f"score of task {task.name!r} returned ({', '.join(map(str, vector))}) for problem"
                        f" {problem.slug!r} and the answer {answer[:80]!r}.",
                        remedy=f"Expected a number in [0, 1] for each of {', '.join(names)}.",
                    )
    return scores


class GeneratedTask(Task, Protocol):
    """A task that trains policies from scratch, and therefore also demonstrates candidates."""

    def vocabulary(self) -> tuple[str, ...]: ...

    def demonstrate(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return a valid candidate that is good at some rewards and rarely optimal."""

    def improve(self, problem: Problem, rng: np.random.Generator) -> tuple[str, str] | None:
        """Return a candidate with a child one edit away that is better in some reward; None if none was found."""


def drawn_problems(
    task: str,
    split: Split,
    count: int,
    start: int,
    draw: Callable[[np.random.Generator], Content],
    key: Callable[[Content], object] = lambda content: content,
) -> Iterator[tuple[int, Content]]:
    """Yield numbered contents of a split, drawn by ``draw``.

    The parity of the digest of a content's key decides its split, so no problem can be in both. Every number has its
    own generator: problem 7 is the same whether or not problem 6 was drawn.
    """
    for number in range(start, start + count):
        rng = np.random.default_rng([int(text_digest(f"{task}/{split}")[:8], 16), number])
        content = draw(rng)
        while int(digest_of(key(content))[-1], 16) % 2 != (split is Split.TRAIN):
            content = draw(rng)
        yield number, content
