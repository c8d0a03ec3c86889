"""Warm-up of all arms: examples with errors, and the gate that the warmed base must pass.

The base must write sets, and meet each target now and then: without it there is nothing to learn from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np

from speciate.domain.arrays import FloatArray
from speciate.domain.problem import Problem
from speciate.prompts.rejection import Reason
from speciate.training.tasks import Split, Task, python_steps
from speciate.training.tasks.choices import ChoicesTask
from speciate.training.tasks.python import FAMILIES
from speciate.training.warm_up import Judge, Sampled

WRONG: Final = (4, 5)
"""Programs beside the three references, of problems in turn: 60 % of the programs are wrong."""
WHOLE: Final = 0.9
"""Least share of sets in which every answer is readable."""
SUCCESS: Final = (0.03, 0.15)
"""Range of the share of single answers that meet a target, as the mean over the targets."""
BALANCE: Final = 0.2
"""Largest relative difference between the shares of right answers in sets and in single answers."""


@dataclass(frozen=True)
class ErringTask(ChoicesTask):
    """``python-choices`` with demonstrations of which 60 % do a step that the problem does not ask for."""

    def with_solutions(self, split: Split, count: int, *, start: int = 0) -> Iterator[tuple[Problem, tuple[str, ...]]]:
        for number, (problem, programs) in enumerate(super().with_solutions(split, count, start=start), start):
            rng = np.random.default_rng([number])
            kind = next(kind for family, kind in FAMILIES.items() if f"family {family}," in str(problem.source))
            wrong: dict[str, None] = {}
            while len(wrong) < WRONG[number % len(WRONG)]:
                program = python_steps.solution(python_steps.draw_chain(kind, 1, rng))
                if program not in programs:
                    wrong[program] = None
            yield problem, (*programs, *wrong)


def judge_of(task: Task) -> Judge:
    """Return the judge of the warm-up, which measures single answers and sets by the sandbox."""
    return partial(_judge, task)


def _judge(task: Task, problems: Sequence[Problem], singles: Sampled, sets: Sampled) -> dict[str, float]:
    readable = [
        all(answer.failure is None or answer.failure.reason == Reason.DUPLICATE_IN_ROLLOUT for answer in answers)
        and len(answers) == task.answers
        for rollouts in sets
        for answers in rollouts
    ]
    single, several = (_met(task, problems, sampled, m) for sampled, m in ((singles, 1), (sets, task.answers)))
    whole, success = float(np.mean(readable)), float(single.mean())
    ratio = float(several.sum() / max(single.sum(), 1e-9))
    low, high = SUCCESS
    ready = whole >= WHOLE and low <= success <= high and abs(ratio - 1) <= BALANCE
    shares = {
        f"{form}_{name}": float(share)
        for form, met in (("single", single), ("set", several))
        for name, share in zip(task.rewards, met, strict=True)
    }
    return {"whole": whole, "success": success, "ratio": ratio, **shares, "ready": float(ready)}


def _met(task: Task, problems: Sequence[Problem], sampled: Sampled, m: int) -> FloatArray:
    """Return the share of answers that meet each target, shape (k,); missing and unreadable ones meet none."""
    programs = [[a.program for answers in rollouts for a in answers if a.failure is None] for rollouts in sampled]
    scores = task.score(list(zip(problems, programs, strict=True)))
    met = sum((np.reshape(vectors, (-1, len(task.rewards))) >= 1).sum(axis=0) for vectors in scores)
    return np.asarray(met / (m * sum(map(len, sampled))))
