"""Interface of the sandbox tiers."""

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from evaluators.contained.meter import Exceeded
from evaluators.contained.seccomp import SyscallPolicy
from evaluators.tiers.folders import ProblemFolders
from evaluators.tiers.scheduling import SchedulingDelay
from speciate.domain.limits import Limits


class ProcessRole(StrEnum):
    """Program that a contained process runs, a module of ``evaluators.contained``."""

    CANDIDATE = "candidate"
    AUTHOR = "author"
    COMMAND = "command"
    IN_PROCESS = "in_process"


@dataclass(frozen=True, slots=True)
class ProcessSpec:
    role: ProcessRole
    limits: Limits
    preload: tuple[str, ...] = ()
    """Modules that the zygote imports in advance."""
    syscall_policy: SyscallPolicy = SyscallPolicy.THREADS
    folder: Path | None = None
    """Folder whose sub-folder ``data`` the process sees, or None."""
    site: Path | None = None
    """Folder of the problem's packages; None uses those of the worker."""
    cpu_s: float = 0.0
    """Limit on the processor time of all its processes together, in seconds; 0 for none."""


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Exit status and resource usage of a contained process, as its supervisor reports them."""

    status: int | None
    """Wait status, or None if the supervisor does not report it."""
    ended: bool
    """True if the process ended by itself, False if it was stopped."""
    cpu_s: float = 0.0
    """CPU time in seconds, including every process it started."""
    memory_bytes: int = 0
    """Peak resident memory of the largest process, including the interpreter."""
    exceeded: Exceeded = Exceeded.NOTHING
    """Limit for which the supervisor stopped it."""


class SandboxedProcess(Protocol):
    """A contained process, waiting for its first message."""

    @property
    def channel(self) -> socket.socket:
        """Stream to the process, never to be waited for; it ends when every process has closed the other end."""

    @property
    def logs(self) -> Mapping[str, int]:
        """Non-blocking descriptors of ``stdout`` and ``stderr``, for reading."""

    def wait_ready(self, timeout_s: float) -> bool:
        """Return True once the process is ready for messages; ``OSError`` if the tier cannot start it."""

    @property
    def waiting(self) -> SchedulingDelay:
        """Time that the process was ready to run while others had the processor."""

    def stop(self, *, grace_s: float = 0.0) -> ResourceUsage:
        """Kill the process and everything it started, remove its files, and return its usage. Call this only once.

        ``grace_s`` are seconds to wait for it to end by itself: the channel of a dying process closes a moment before
        its supervisor can report the exit status.
        """

    def close(self) -> None: ...


class ProcessSupervisor(Protocol):
    """Start contained processes of one specification, one after another, for one batch."""

    @property
    def idle(self) -> bool: ...

    @property
    def closed(self) -> bool: ...

    def start(self, ended: Callable[[], None]) -> SandboxedProcess:
        """Start a process without waiting for it, or raise ``OSError``; ``ended`` is called after it was stopped."""

    def close(self) -> None: ...


class Sandbox(Protocol):
    """Start supervisors of contained processes; thread-safe and fork-safe."""

    @property
    def name(self) -> str: ...

    @property
    def folders(self) -> ProblemFolders: ...

    def start(self, needs: ProcessSpec) -> ProcessSupervisor:
        """Start a supervisor without waiting for it; raises ``EvaluatorUnavailableError`` or ``OSError``."""
