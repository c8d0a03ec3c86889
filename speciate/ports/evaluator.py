"""Port to the sandboxed evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from speciate.domain.candidate import Evaluation
from speciate.domain.problem import Problem


class EvaluatorClient(Protocol):
    """Evaluates candidates outside their own process. A candidate's failure is a value in the result."""

    @property
    def tier(self) -> str:
        """Isolation tier in force, such as ``A``."""

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        """Evaluate programs on a problem; return one result per program, in order.

        Args:
            problem: The problem.
            programs: Program texts or data documents.
            seeds: Seed of each evaluation, for problems with random scores.
            timeout_s: Limit for the whole batch in seconds, besides the problem's own limits. Candidates not evaluated
                by then fail with ``timeout``.

        Raises:
            EvaluatorUnavailableError: The evaluator does not work. No candidate caused this.
        """
