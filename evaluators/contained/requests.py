"""Messages from the broker to the zygote: its configuration, and requests for contained processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from .seccomp import SyscallPolicy


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """One process to start. Nothing in it comes from a candidate.

    Attributes:
        role: Which program it runs: a key of ``ROLES`` in ``supervise``.
        frame_bytes: Longest frame it may write to the channel.
        rlimits: Soft and hard resource limits by the name ``resource`` gives them.
        memory_bytes: Address space it may use beyond that of the warm interpreter it is forked from.
        processes: How many threads (and processes, where any are free) it may have.
        tmp_bytes: Size of its own ``/tmp``.
        tmp_files: How many files and folders that may hold.
        syscall_policy: System calls it may make.
        folder: Folder with the problem's files: a host path, or a name under tier A's folder of folders; "" for none.
    """

    role: str
    frame_bytes: int
    rlimits: dict[str, tuple[int, int]]
    memory_bytes: int
    processes: int
    tmp_bytes: int
    tmp_files: int
    syscall_policy: SyscallPolicy = SyscallPolicy.THREADS
    folder: str = ""

    def encode(self) -> bytes:
        """Return the order as one message."""
        return json.dumps(asdict(self) | {"syscall_policy": self.syscall_policy.value}).encode()

    @classmethod
    def decode(cls, data: bytes) -> SpawnRequest:
        """Return the order that a message holds."""
        fields = json.loads(data)
        return cls(**fields | {"syscall_policy": SyscallPolicy(fields["syscall_policy"])})


@dataclass(frozen=True, slots=True)
class BootMessage:
    """Configuration of a zygote.

    Attributes:
        tier: Which walls: a key of ``TIERS`` in ``zygote``.
        user: User and group id to become first, when it is started by root; None to stay.
        preload: Modules to import before the first order, for every process to have.
        path: Where modules are found.
        readable: Paths that contained processes may read (tier B; in tier A bubblewrap shows nothing else, and these
            are the ones beneath ``/tmp``, which its own ``/tmp`` would cover).
        hidden: Folders beneath those whose files they may not read.
        folders: Where the folders of problems with files are, or "" (tier B).
    """

    tier: str
    user: int | None
    preload: tuple[str, ...]
    path: tuple[str, ...]
    readable: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    folders: str = ""

    def encode(self) -> bytes:
        """Return the instructions as one message."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> BootMessage:
        """Return the instructions that a message holds."""
        fields = json.loads(data)
        sequences = {name: tuple(fields[name]) for name in ("preload", "path", "readable", "hidden")}
        return cls(**fields | sequences)
