"""Messages from the broker to the zygote: its configuration, and requests for contained processes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from .seccomp import SyscallPolicy


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """Request to start one process. It contains no data of a candidate.

    Attributes:
        role: Program to run: a key of ``ROLES`` in ``supervise``.
        frame_bytes: Longest frame that the process may write to the channel.
        rlimits: Soft and hard resource limits by their names in ``resource``.
        memory_bytes: Limit on resident memory in bytes, in addition to that of the zygote.
        tasks: Limit on threads, and on processes where the policy allows them, together.
        tmp_bytes: Size of the private ``/tmp`` in bytes.
        tmp_files: Limit on files and folders in it.
        syscall_policy: System calls that the process may make.
        folder: Folder with the problem's files: a host path, or a name under tier A's folder of folders; "" for none.
    """

    role: str
    frame_bytes: int
    rlimits: dict[str, tuple[int, int]]
    memory_bytes: int
    tasks: int
    tmp_bytes: int
    tmp_files: int
    syscall_policy: SyscallPolicy = SyscallPolicy.THREADS
    folder: str = ""

    def encode(self) -> bytes:
        """Return the request as one message."""
        return json.dumps(asdict(self) | {"syscall_policy": self.syscall_policy.value}).encode()

    @classmethod
    def decode(cls, data: bytes) -> SpawnRequest:
        """Return the request in a message."""
        fields = json.loads(data)
        return cls(**fields | {"syscall_policy": SyscallPolicy(fields["syscall_policy"])})


@dataclass(frozen=True, slots=True)
class BootMessage:
    """Configuration of a zygote.

    Attributes:
        tier: Isolation to apply: a key of ``TIERS`` in ``zygote``.
        user: User and group id to switch to if root starts the zygote; None keeps the user.
        preload: Modules to import before the first request, for all processes.
        path: Module search path.
        readable: Paths that contained processes may read (tier B). In tier A bubblewrap mounts no other paths; here
            are only those beneath ``/tmp``, which the private ``/tmp`` would cover.
        hidden: Folders beneath ``readable`` whose files they may not read.
        folders: Root of the problem folders, or "" (tier B).
        foreign: True if the modules to preload are not the worker's: they are imported after the switch of the user.
    """

    tier: str
    user: int | None
    preload: tuple[str, ...]
    path: tuple[str, ...]
    readable: tuple[str, ...]
    hidden: tuple[str, ...] = ()
    folders: str = ""
    foreign: bool = False

    def encode(self) -> bytes:
        """Return the configuration as one message."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> BootMessage:
        """Return the configuration in a message."""
        fields = json.loads(data)
        sequences = {name: tuple(fields[name]) for name in ("preload", "path", "readable", "hidden")}
        return cls(**fields | sequences)
