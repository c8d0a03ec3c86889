"""The port to the contained evaluator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from speciate.domain.candidate import Evaluation
from speciate.domain.problem import Problem


class EvaluatorClient(Protocol):
    """Scores candidates outside their process. A candidate's failure is a value in the result."""

    @property
    def tier(self) -> str:
        """Containment in force, such as ``process``."""
        ...

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        """Score programs against a problem, one result per program in order.

        Args:
            problem: The problem.
            programs: Program texts (or data documents).
            seeds: Seed of each evaluation, for problems whose score depends on one.
            timeout_s: Seconds for the whole batch, besides the problem's own limits; what is not scored by then
                fails with ``timeout``.

        Raises:
            EvaluatorUnavailableError: The evaluator itself cannot work; no candidate is to blame.
        """
        ...
