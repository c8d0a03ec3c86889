"""The candidate of one scripted evaluation, in a process that restarts after it dies."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from pydantic import JsonValue

from evaluators.batch import EvaluationBatch, ProcessStarter
from evaluators.build_cache import BuiltFiles
from evaluators.building import build_program
from evaluators.candidate_process import CallResult, CandidateProcess
from evaluators.channel import Message
from evaluators.contained.candidate import LOADING
from evaluators.failures import BATCH_DEADLINE, failure_of
from evaluators.session import PATIENCE, EndReason, Session, SessionEndedError, TimeAllowance
from evaluators.tiers.sandbox import ResourceUsage
from speciate.domain.candidate import Failure, FailureKind

_MAX_DEATHS = 8

_EXITED = Failure(FailureKind.CRASHED, "exited")

Drain = Callable[[Session | None], None]
"""Makes the script's session read the logs of the candidate's session, too, while it waits; None ends that."""


@dataclass(frozen=True, slots=True)
class _DirectCalls:
    """Period in which the script calls a process over its channel."""

    allowance: TimeAllowance
    """Time limit of the calls of this period."""
    began: float
    candidate_s: float
    """Seconds on the shared clock at the beginning."""
    drain: Drain

    def used_s(self, candidate_s: float) -> float:
        """Return the candidate's seconds since the beginning; the allowance counts nothing else."""
        used_s = candidate_s - self.candidate_s
        self.allowance.paused_s = time.monotonic() - self.began - used_s
        return used_s


class RestartingCandidate:
    """Serve calls into a candidate within its wall limit.

    Calls arrive here or, while the script has acquired the channel, at the process itself. The shared clock then tells
    the candidate's seconds so far, which the methods take as ``candidate_s``.

    A call that raises an exception keeps the process. A call that times out or ends the process loses the candidate's
    state: the next call runs in a fresh process. After ``_MAX_DEATHS`` deaths, or if the program cannot be loaded,
    every further call fails with the same failure. From the first call with held-out inputs on (``knows_held_out``),
    nothing that is printed is kept. ``cpu_s`` is complete after the ``with`` block; ``logs`` are those of the last
    process that printed anything.
    """

    def __init__(
        self, batch: EvaluationBatch, starter: ProcessStarter, program: str, seed: int, files: BuiltFiles | None = None
    ) -> None:
        """Build a program that is not Python; ``files`` come beside its own."""
        self._batch, self._starter = batch, starter
        self._program, self._seed = program, seed
        self._left_s = batch.problem.limits.wall_s
        self._clock_left_s = PATIENCE * self._left_s  # clock limit of all calls; each has its own, too
        self._process: CandidateProcess | None = None
        built = None if batch.problem.language is None else build_program(batch, program)
        self._final: Failure | None = built if isinstance(built, Failure) else None
        self._built = None if built is None or isinstance(built, Failure) else {**built, **(files or {})}
        self._direct: _DirectCalls | None = None
        self._late: Failure | None = None  # of a call over the direct channel, which the script does not know yet
        self._deaths = self._asked = 0
        self._lock = threading.Lock()  # calls of several threads wait for each other, and the end for calls
        self.cpu_s = 0.0
        self.memory_bytes = 0
        self.logs: dict[str, str] = {}
        self.knows_held_out = False

    @property
    def channel_acquired(self) -> bool:
        return self._direct is not None

    def acquire_channel(self, drain: Drain) -> tuple[int, int] | None:
        """Let the script use the channel; return its descriptor and the longest frame to accept, None if impossible."""
        # A relay outside of the sandbox is the other end, or the worker sees of each call how long it waited.
        if self._batch.image is not None or self._batch.problem.language is not None:
            return None
        process = self._process
        if self._final is not None or process is None or (fd := process.session.acquire()) is None:
            return None
        self._begin_direct(process, 0.0, drain)
        return fd, process.frame_bytes

    def left_s(self, candidate_s: float) -> float:
        """Return the seconds left for a direct call; without any, the process is stopped and the call fails."""
        if self._direct is None:
            return 0.0
        used_s = self._direct.used_s(candidate_s)
        left_s = min(self._direct.allowance.left_s(), self._clock_left_s - used_s)
        if left_s <= 0.0:
            self._late = self._lose(SessionEndedError(EndReason.LATE), candidate_s)
        return left_s

    def refused(self, answer: Message, candidate_s: float) -> CallResult:
        process = self._process
        if process is None or (direct := self.release_channel(candidate_s)) is None:
            return CallResult(0, failure=self._late or self._final or _EXITED)
        try:
            result = process.refused(answer)
        except SessionEndedError as ended:
            return CallResult(0, failure=self._died(ended, self._left_s))
        if result.index == LOADING:
            self._final = result.failure
        else:
            self._begin_direct(process, candidate_s, direct.drain)
        return result

    def lost(self, ending: EndReason, detail: str, candidate_s: float) -> CallResult:
        if self._direct is None:
            return CallResult(0, failure=self._late or self._final or _EXITED)
        return CallResult(0, failure=self._lose(SessionEndedError(ending, detail), candidate_s))

    def call(
        self,
        name: str,
        args: list[JsonValue],
        timeout_s: float | None,
        candidate_s: float = 0.0,
        *,
        held_out: bool = False,
    ) -> CallResult:
        """Return the answer to one call; the rest of the wall limit applies beside its own time limit."""
        with self._lock:
            direct, process = self.release_channel(candidate_s), self._process
            self.knows_held_out |= held_out
            if held_out and process is not None:
                process.session.mute()
            answer = self._call(name, args, timeout_s)
            if direct is not None and process is not None and process is self._process and self._final is None:
                self._begin_direct(process, candidate_s, direct.drain)
            return answer

    def _call(self, name: str, args: list[JsonValue], timeout_s: float | None) -> CallResult:
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
        until, language = min(self._batch.deadline, began + self._clock_left_s), self._batch.problem.language
        allowance = process.session.allow(allowed_s, until, per_call=language is not None)
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

    def _begin_direct(self, process: CandidateProcess, candidate_s: float, drain: Drain) -> None:
        drain(process.session)
        self._direct = _DirectCalls(
            process.session.allow(self._left_s, self._batch.deadline), time.monotonic(), candidate_s, drain
        )

    def release_channel(self, candidate_s: float) -> _DirectCalls | None:
        """End the script's use of the channel and return its period, None if it has none."""
        direct, self._direct = self._direct, None
        if direct is not None:
            used_s = direct.used_s(candidate_s)
            self._left_s -= max(direct.allowance.used_s, 0.0)
            self._clock_left_s -= used_s
            direct.drain(None)
        return direct

    def _lose(self, ended: SessionEndedError, candidate_s: float) -> Failure:
        allowed_s = self._left_s
        self.release_channel(candidate_s)
        if self._process is not None:
            if ended.ending is EndReason.GONE:
                self._process.session.note_end()
            else:
                # Descriptors of a killed process can outlive it, in messages that were never received.
                self._process.session.shut_down()
        return self._died(ended, allowed_s)

    def _begin(self) -> CandidateProcess:
        contained = self._starter.take()
        self._process = CandidateProcess(contained, self._program, self._seed, self._batch.problem, self._built)
        if self.knows_held_out:
            self._process.session.mute()
        self._final = self._process.load(self._batch.deadline)
        return self._process

    def _died(self, ended: SessionEndedError, allowed_s: float) -> Failure:
        spent = self._batch.expired
        limits = self._batch.problem.limits
        usage = self._end()
        own = {"wall_s": allowed_s} if allowed_s < self._left_s else {}  # the limit of one call
        failure = failure_of(ended, usage, limits.model_copy(update=own))
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

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._final = _EXITED  # for a thread that calls later
            self._end()
