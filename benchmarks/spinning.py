"""An evaluator that burns one millisecond of processor time for each candidate, inside the worker.

The work queue is measured here, so containment is left out; ``workers.app`` is otherwise the real one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import workers.composition
from benchmarks.parts import SPINNING
from speciate.domain.candidate import Evaluation
from speciate.domain.problem import Problem

EVALUATION_S = 0.001


class SpinningEvaluator:
    """Burns time and scores by a hash of the text."""

    tier = SPINNING

    def can_evaluate(self, _: Problem) -> bool:
        return True

    def languages(self) -> dict[str, str]:
        return {}

    def tools(self, _: object) -> tuple[str, ...]:
        return ()

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        return [self._one(problem, program) for program in programs]

    def _one(self, problem: Problem, program: str) -> Evaluation:
        end = time.thread_time() + EVALUATION_S
        while time.thread_time() < end:
            pass
        value = hash(program)
        rewards = tuple((value >> 8 * j & 0xFF) / 256 for j in range(len(problem.objectives)))
        return Evaluation(rewards=rewards, tier=self.tier, wall_s=EVALUATION_S, cpu_s=EVALUATION_S)


workers.composition.open_evaluator = lambda *_: SpinningEvaluator()  # type: ignore[assignment,return-value]
