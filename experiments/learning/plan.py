"""The declared runs: arms, problems, seeds and budgets (docs/evidence/learning.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from speciate.domain.problem import Problem
from speciate.training.tasks import GENERATED, Split

FROZEN: Final = "frozen"
ARMS: Final[dict[str, str | None]] = {
    FROZEN: None,
    "grpo": "grpo",
    "vpo": "vpo",
    "vector_max_at_k": "vector_max_at_k",
    "entropic": "entropic",
}
TASKS: Final = {"maze-9": "maze-base", "programs-hard": "programs-base"}
PARITIES: Final = ("answers", "time")
EVALUATIONS: Final = 2000
SECONDS: Final = 300.0
_FIRST: Final = {"maze-9": 0, "programs-hard": 400}
"""Position of the first problem among the held-out ones: the earlier ones are in other tables."""


@dataclass(frozen=True)
class Plan:
    """Size of the comparison.

    Attributes:
        problems: Problems of each task.
        seeds: Training seeds, the unit of the test.
        evaluations: Budget of the comparison at equal answers.
        seconds: Budget of the comparison at equal time.
        groups: Groups of a step.
    """

    problems: int = 100
    seeds: int = 3
    evaluations: int = EVALUATIONS
    seconds: float = SECONDS
    groups: int = 8


@dataclass(frozen=True)
class DeclaredRun:
    """A run of the plan.

    Attributes:
        task: Task of its problem.
        problem: The problem.
        arm: Key of ``ARMS``.
        seed: Seed of the run.
        parity: ``answers`` or ``time``.
        spec: Arguments of the client's ``runs.create``.
    """

    task: str
    problem: Problem
    arm: str
    seed: int
    parity: str
    spec: dict[str, Any]

    @property
    def key(self) -> str:
        """Idempotency key: a repeated command finds the run of the first one."""
        ((unit, amount),) = self.spec["budget"].items()
        return f"learning/{self.task}/{self.problem.slug}/{self.arm}/{self.seed}/{self.parity}/{unit}={amount}"


def declared_runs(plan: Plan) -> Iterator[DeclaredRun]:
    """Yield the runs: seeds outermost, so that an interrupted comparison has whole seeds; arms innermost, paired.

    A policy writes one answer per completion in every arm; ``vpo`` then scores sets of one answer.
    """
    budgets: dict[str, dict[str, float]] = {
        "answers": {"evaluations": plan.evaluations},
        "time": {"seconds": plan.seconds},
    }
    drawn = {
        task: [*GENERATED[task].problems(Split.TEST, first + plan.problems)][first:] for task, first in _FIRST.items()
    }
    for seed in range(plan.seeds):
        for task, problems in drawn.items():
            for problem in problems:
                for parity, budget in budgets.items():
                    for arm, estimator in ARMS.items():
                        learning = None if estimator is None else {"estimator": estimator, "groups": plan.groups}
                        spec = {
                            "budget": budget,
                            "seed": seed,
                            "strategy": "best_of_n",
                            "samples_per_prompt": 8,
                            "lanes": 2,
                            "stop_on_unlock": True,
                            "learning": learning,
                        }
                        yield DeclaredRun(task, problem, arm, seed, parity, spec)
