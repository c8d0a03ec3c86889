"""Port to the sandboxed evaluator."""

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
        """Evaluate programs or data documents on a problem; return one result for each, in order.

        Every evaluation has a seed, for problems with random scores. ``timeout_s`` limits the whole batch, besides the
        problem's own limits: candidates not evaluated by then fail with ``timeout``.

        Raises:
            EvaluatorUnavailableError: The evaluator does not work. No candidate caused this.
        """
