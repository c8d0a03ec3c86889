"""Interface of the sandbox tiers."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from evaluators.contained.seccomp import SyscallPolicy
from evaluators.tiers.folders import ProblemFolders
from evaluators.tiers.scheduling import SchedulingDelay
from speciate.domain.problem import Limits


class ProcessRole(StrEnum):
    """Which program a contained process runs."""

    CANDIDATE = "candidate"
    """Serves calls into one candidate's program."""
    AUTHOR = "author"
    """Serves the problem author's script, for many candidates."""
    COMMAND = "command"
    """Serves calls into one candidate that is not Python."""
    IN_PROCESS = "in_process"
    """Serves an author's script that imports one candidate."""


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    """Specification of a contained process.

    Attributes:
        role: Which program it runs.
        limits: What it may use.
        preload: Modules it finds imported.
        syscall_policy: System calls it may make.
        folder: Folder whose sub-folder ``data`` it sees, or None.
    """

    role: ProcessRole
    limits: Limits
    preload: tuple[str, ...] = ()
    syscall_policy: SyscallPolicy = SyscallPolicy.THREADS
    folder: Path | None = None


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Exit status and resource usage of a contained process, as its supervisor reports them.

    Attributes:
        status: Wait status, or None when the supervisor could not tell.
        ended: Whether it ended by itself, rather than by being stopped.
        cpu_s: Seconds of processor time, with every process it started.
        memory_bytes: Peak resident memory of the largest process, with the interpreter.
        exceeded: Whether it was stopped for having too many threads.
    """

    status: int | None
    ended: bool
    cpu_s: float = 0.0
    memory_bytes: int = 0
    exceeded: bool = False


class SandboxedProcess(Protocol):
    """A contained process, waiting for its first message."""

    @property
    def channel(self) -> socket.socket:
        """Non-blocking stream to the process; it ends when the other end is closed in every process."""
        ...

    @property
    def logs(self) -> Mapping[str, int]:
        """Non-blocking descriptors to read ``stdout`` and ``stderr`` from."""
        ...

    def wait_ready(self, timeout_s: float) -> bool:
        """Return whether the process runs and can be given work, after waiting for it to start."""
        ...

    @property
    def waiting(self) -> SchedulingDelay:
        """For how long the process was ready to run while others had the processor."""
        ...

    def stop(self, *, grace_s: float = 0.0) -> ResourceUsage:
        """Kill the process and everything it started, remove its files, and return how it ended. Only once.

        Args:
            grace_s: Seconds to wait for it to end by itself: the channel of a dying process closes a moment before
                its supervisor can tell how it died.
        """
        ...

    def close(self) -> None:
        """Close the channel and the logs; the process must have been stopped."""
        ...


class Sandbox(Protocol):
    """Starts contained processes. Usable from several threads, and after a fork."""

    @property
    def name(self) -> str:
        """Name of the tier, as it is recorded with every evaluation."""
        ...

    @property
    def folders(self) -> ProblemFolders:
        """Folders of files that contained processes may be shown."""
        ...

    def start(self, needs: ProcessSpec) -> SandboxedProcess:
        """Start a process without waiting for it.

        Raises:
            EvaluatorUnavailableError: The tier cannot start what is needed.
            OSError: The machine has no process, descriptor or temporary space left.
        """
        ...

    def close(self) -> None:
        """Stop everything that is kept running between evaluations."""
        ...
