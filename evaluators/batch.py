"""One batch on its way through an evaluator, and the interpreters that are started for it ahead of time."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from evaluators.contained.seccomp import SyscallPolicy
from evaluators.failures import BATCH_DEADLINE
from evaluators.session import Session
from evaluators.tiers.sandbox import ProcessRole, ProcessSpec, Sandbox, SandboxedProcess
from speciate.domain.candidate import Evaluation
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.problem import Problem

_START_S = 30.0
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class EvaluationBatch:
    """Programs to score.

    Attributes:
        problem: What scores them.
        programs: Their texts.
        seeds: Seed of each evaluation.
        sandbox: Tier that contains them.
        deadline: When the batch must end, on the clock of ``time.monotonic``; may be infinite.
        author_grace_s: Seconds that an author's script gets for loading and for its own part of an evaluation, besides
            twice the problem's wall limit.
        folder: Folder of the problem's data files, or None.
    """

    problem: Problem
    programs: tuple[str, ...]
    seeds: tuple[int, ...]
    sandbox: Sandbox
    deadline: float
    author_grace_s: float
    folder: Path | None = None

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(zip(self.programs, self.seeds, strict=True))

    @property
    def expired(self) -> bool:
        """Whether the batch must end."""
        return time.monotonic() >= self.deadline

    @property
    def author_s(self) -> float:
        """Seconds that an author's script may take for itself."""
        return self.author_grace_s + 2 * self.problem.limits.wall_s

    def needs(self, role: ProcessRole, folder: Path | None = None) -> ProcessSpec:
        """Return what a process of this batch is to be; it sees the problem's folder, or one of its own."""
        syscall_policy, preload = SyscallPolicy.THREADS, self.problem.preload
        if role is ProcessRole.CANDIDATE and self.problem.language is not None:
            role, syscall_policy, preload = ProcessRole.COMMAND, SyscallPolicy.PROCESSES, (*preload, "subprocess")
        return ProcessSpec(role, self.problem.limits, preload, syscall_policy, folder or self.folder)

    def out_of_time(self) -> Evaluation:
        """Return the result of a program that the batch had no time for."""
        return Evaluation(failure=BATCH_DEADLINE, tier=self.sandbox.name)


class ProcessStarter:
    """Hands out contained processes, and starts the next one while the present one works."""

    def __init__(self, sandbox: Sandbox, needs: ProcessSpec, expected: int) -> None:
        self._sandbox, self._needs = sandbox, needs
        self._expected = expected
        self._spare: SandboxedProcess | None = None

    def take(self) -> SandboxedProcess:
        """Return a process that waits for its first message.

        Raises:
            EvaluatorUnavailableError: None can be started.
        """
        self._expected -= 1
        log = ""
        for _ in range(_ATTEMPTS):
            contained, self._spare = self._spare or self._start(), None
            if contained.wait_ready(_START_S):
                return contained
            # An earlier candidate may have killed the spare; only a fresh one that fails says that nothing works.
            log = _discard(contained)
        raise EvaluatorUnavailableError(
            f"No contained process starts in tier {self._sandbox.name!r}: {log.strip()[-500:] or 'it says nothing'}.",
            remedy="Check that the Python installation of the worker is complete and readable by its user.",
        )

    def warm(self) -> None:
        """Start the next process if another program is expected; where that fails, ``take`` tries again and tells."""
        if self._expected > 0 and self._spare is None:
            with contextlib.suppress(EvaluatorUnavailableError):
                self._spare = self._start()

    def close(self) -> None:
        """Stop the process that nobody took."""
        if self._spare is not None:
            _discard(self._spare)
            self._spare = None

    def _start(self) -> SandboxedProcess:
        try:
            return self._sandbox.start(self._needs)
        except OSError as error:
            raise EvaluatorUnavailableError(
                f"No process can be started for an evaluation: {error}.",
                remedy="Check the limits on processes and open files, and the space in the temporary directory.",
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _discard(contained: SandboxedProcess) -> str:
    session = Session(contained, frame_bytes=0, log_bytes=4096)
    session.end()
    return session.logs()["stderr"]
