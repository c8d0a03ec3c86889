"""The declared jobs: screenings, searches of one problem, and campaigns (docs/evidence/learning.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Final

from speciate.domain.problem import Problem
from speciate.training.tasks import GENERATED, Split
from speciate.training.tasks.programs import ProgramsTask, cases_of

FROZEN: Final = "frozen"
FROZEN_SETS: Final = "frozen_sets"
ARMS: Final[dict[str, str | None]] = {
    FROZEN: None,
    FROZEN_SETS: None,
    "grpo": "grpo",
    "vpo": "vpo",
    "vector_max_at_k": "vector_max_at_k",
    "entropic": "entropic",
}
"""Estimators by arm; None does not learn."""
SETS: Final = frozenset({FROZEN_SETS, "vpo"})
"""Arms whose policy writes three answers per completion, the form of VPO."""
GROUP: Final = 8
"""Completions of a prompt."""


@dataclass(frozen=True)
class Shape:
    """Size of batches and steps, so that all arms take a step about every 64 answers.

    Attributes:
        answers: Answers per completion.
        prompts: Prompts of a batch; two batches are in flight.
        groups: Groups of a step.
    """

    answers: int
    prompts: int
    groups: int


_ONE: Final = Shape(1, 4, 8)
_THREE: Final = Shape(3, 2, 3)


def shape_of(arm: str) -> Shape:
    """Return the sizes of an arm."""
    return _THREE if arm in SETS else _ONE


TASKS: Final = {"programs": "programs-base", "maze": "maze-base"}

SCREENED: Final = {"programs": 400, "maze": 200}
"""Position of the first held-out problem that is screened: the earlier ones are in other tables."""
TAUGHT: Final = 10_000
"""Position of the first problem of a campaign."""
FRESH: Final = 20_000
"""Position of the first problem that measures a campaign."""
TRIES: Final = 64
"""Answers to each fresh problem."""
CUTS: Final = {"programs": TRIES, "maze": 8}
"""Answers within which a fresh problem counts as unlocked: 64 answers unlock most mazes, so 8 decide."""


@dataclass(frozen=True)
class Plan:
    """Size of the comparison.

    Attributes:
        problems: Hard problems of each task.
        seeds: Training seeds, the unit of the test.
        answers: Answers of a search.
        patience: The frozen search goes on to this multiple, for the comparison at equal processor time.
        screening: Answers of the frozen policy that do not unlock a hard problem.
        taught: Problems of a campaign.
        turn: Answers for each of them.
        fresh: Problems on which the ends of a campaign are measured.
        tries: Answers for each of them.
    """

    problems: int = 50
    seeds: int = 3
    answers: int = 512
    patience: int = 6
    screening: int = 256
    taught: int = 60
    turn: int = 128
    fresh: int = 100
    tries: int = TRIES


@dataclass(frozen=True)
class Job:
    """One search or one campaign.

    Attributes:
        kind: ``search`` or ``campaign``.
        task: Key of ``TASKS``.
        arm: Key of ``ARMS``.
        seed: Seed of everything random.
        number: Position of the problem; 0 for a campaign.
    """

    kind: str
    task: str
    arm: str
    seed: int
    number: int = 0

    @property
    def key(self) -> str:
        """Name of its line in the file of results."""
        return f"{self.kind}/{self.task}/{self.number}/{self.arm}/{self.seed}"


@cache
def problem_at(task: str, number: int) -> Problem:
    """Return a held-out problem."""
    (problem,) = GENERATED[task].problems(Split.TEST, 1, start=number)
    return problem


def solvable(kind: ProgramsTask, problem: Problem) -> bool:
    """Return True if an answer of the length that policies may write can pass all cases."""
    outputs = [y for _, y in sorted(cases_of(problem))]
    return 1 + sum(a != b for a, b in pairwise(outputs)) <= kind.shown


def positions(task: str, start: int) -> Iterator[int]:
    """Yield the positions of problems that an answer can solve, from ``start``, without end."""
    kind = GENERATED[task]
    while True:
        if not isinstance(kind, ProgramsTask) or solvable(kind, problem_at(task, start)):
            yield start
        start += 1


def declared_jobs(plan: Plan, hard: Callable[[str, int], int]) -> Iterator[Job]:
    """Yield the jobs: seeds outermost, so that an interrupted comparison has whole seeds; arms innermost, paired.

    Args:
        plan: The sizes.
        hard: Returns the position of the n-th hard problem of a task.
    """
    for seed in range(plan.seeds):
        for place in range(plan.problems):
            for task in TASKS:
                position = hard(task, place)
                yield from (Job("search", task, arm, seed, position) for arm in ARMS)
        for task in TASKS:
            yield from (Job("campaign", task, arm, seed) for arm in ARMS)


def number_of_jobs(plan: Plan) -> int:
    """Return the number of declared jobs."""
    return plan.seeds * len(TASKS) * len(ARMS) * (plan.problems + 1)
