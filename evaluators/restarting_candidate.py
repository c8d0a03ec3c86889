"""The candidate of one scripted evaluation, in a process that restarts after it dies."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from pydantic import JsonValue

from evaluators.batch import EvaluationBatch, ProcessStarter
from evaluators.building import build_program
from evaluators.candidate_process import LOADING, CallResult, CandidateProcess
from evaluators.failures import BATCH_DEADLINE, failure_of
from evaluators.session import PATIENCE, SessionEndedError
from evaluators.tiers.sandbox import ResourceUsage
from speciate.domain.candidate import Failure, FailureKind

_MAX_DEATHS = 8


class RestartingCandidate:
    """Serve calls into a candidate within its wall limit.

    A call that raises an exception keeps the process. A call that times out or ends the process loses the candidate's
    state: the next call runs in a fresh process. After ``_MAX_DEATHS`` deaths, or if the program cannot be loaded,
    every further call fails with the same failure.

    Attributes:
        cpu_s: CPU time of all its processes so far in seconds, complete after the ``with`` block.
        memory_bytes: Peak resident memory of the largest process.
        logs: Output of the last process that printed anything, by stream.
    """

    def __init__(self, batch: EvaluationBatch, starter: ProcessStarter, program: str, seed: int) -> None:
        self._batch, self._starter = batch, starter
        self._program, self._seed = program, seed
        self._left_s = batch.problem.limits.wall_s
        self._clock_left_s = PATIENCE * self._left_s  # clock limit of all calls; each has its own, too
        self._process: CandidateProcess | None = None
        built = None if batch.problem.language is None else build_program(batch, program)
        self._final: Failure | None = built if isinstance(built, Failure) else None
        self._built = None if isinstance(built, Failure) else built
        self._deaths = 0
        self._asked = 0
        self.cpu_s = 0.0
        self.memory_bytes = 0
        self.logs: dict[str, str] = {}

    def call(self, name: str, args: list[JsonValue], timeout_s: float | None) -> CallResult:
        """Return the answer to one call.

        Args:
            name: Function of the program.
            args: Its arguments.
            timeout_s: Time limit of this call in seconds; the rest of the wall limit applies as well.
        """
        index = self._asked
        self._asked += 1
        if self._final is not None:
            return CallResult(index, failure=self._final)
        process = self._process or self._begin()
        if self._final is not None:
            return CallResult(index, failure=self._final)
        process.ask(index, name, args)
        allowed_s = self._left_s if timeout_s is None else min(self._left_s, max(timeout_s, 0.0))
        began = time.monotonic()
        allowance = process.allow(allowed_s, min(self._batch.deadline, began + self._clock_left_s))
        try:
            answer = process.answer(allowance)
        except SessionEndedError as ended:
            return CallResult(index, failure=self._died(ended, allowed_s))
        finally:
            self._left_s -= allowance.used_s
            self._clock_left_s -= time.monotonic() - began
        if answer.index == LOADING:
            self._final = answer.failure
        return answer

    def _begin(self) -> CandidateProcess:
        self._process = CandidateProcess(
            self._starter.take(), self._program, self._seed, self._batch.problem, self._built
        )
        self._final = self._process.load(self._batch.deadline)
        return self._process

    def _died(self, ended: SessionEndedError, allowed_s: float) -> Failure:
        spent = self._batch.expired
        limits = self._batch.problem.limits
        usage = self._end()
        failure = failure_of(ended, usage, limits.model_copy(update={"wall_s": allowed_s}))
        self._deaths += 1
        if spent:
            failure = self._final = BATCH_DEADLINE
        elif (self._left_s <= allowed_s and failure.kind is FailureKind.TIMEOUT) or self._deaths >= _MAX_DEATHS:
            self._final = failure  # the wall limit is used up, or the candidate keeps dying
        return failure

    def _end(self) -> ResourceUsage:
        process, self._process = self._process, None
        if process is None:
            return ResourceUsage(None, ended=False)
        usage, logs = process.end()
        self.cpu_s += usage.cpu_s
        self.memory_bytes = max(self.memory_bytes, usage.memory_bytes)
        if any(logs.values()):
            self.logs = logs
        return usage

    def __enter__(self) -> Self:
        if self._final is None:
            self._begin()
            self._starter.overlap()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()
