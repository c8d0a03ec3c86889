"""The sandbox of this process, opened with its first use."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from speciate.domain.candidate import Evaluation
from speciate.domain.errors import SpeciateError
from speciate.domain.problem import Problem
from speciate.local.slots import CoreShares
from speciate.settings import Settings

if TYPE_CHECKING:
    from evaluators.evaluator import SandboxEvaluator


class LocalSandbox:
    """Evaluates in threads of this process; an ``EvaluatorClient``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._shares = CoreShares(settings.slots)
        self._opening = threading.Lock()
        self._opened: SandboxEvaluator | None = None

    @property
    def tier(self) -> str:
        return self.sandbox().tier

    def sandbox(self) -> SandboxEvaluator:
        with self._opening:
            if self._opened is None:
                from evaluators.evaluator_factory import open_evaluator

                self._opened = open_evaluator(self._settings.sandbox, self._settings)
            return self._opened

    def warm(self) -> None:
        """Open the sandbox if that is possible: the first evaluation says why not."""
        with suppress(SpeciateError):
            self.sandbox()

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        with self._shares.take(problem.limits.cores):
            return self.sandbox().evaluate(problem, programs, seeds=seeds, timeout_s=timeout_s)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
