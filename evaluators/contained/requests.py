"""Messages between the worker, a zygote and its supervisors.

The worker sends a zygote its configuration and requests for supervisors, and a supervisor requests for processes.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from .meter import Exceeded
from .seccomp import SyscallPolicy

MESSAGE_BYTES = 1 << 16
"""Longest message to and from a zygote and its supervisors."""

# The first byte tells the kind of a message.
START = b">"  # start a process with the descriptors that the message carries
STOP = b"-"  # stop the process; a supervisor ignores it if the process has ended
HELLO = b"*"  # a supervisor's first message: its process id in its own namespace
ERROR = b"!"  # a supervisor cannot serve: the reason
READY = b"+"  # a process is ready for its program: the name of its folder, if it has one
EXIT = b"="  # a ``REPORT``, then JSON if several processes ran: usage of what was left running, and of what was seen

REPORT = struct.Struct("=cBi5q104x")
"""``EXIT``, flags, the wait status, and ``struct rusage`` (``man 2 wait4``): user and system time in seconds and
microseconds, peak memory in KiB, and numbers that are not used."""

ENDED, RETIRED = 1, 2
"""Flags: the process ended by itself; its supervisor starts no other."""

FLAGS = {Exceeded.NOTHING: 0, Exceeded.THREADS: 4, Exceeded.MEMORY: 8, Exceeded.CPU: 16}
"""Flag of the limit that it exceeded."""


@dataclass(frozen=True, slots=True)
class SpawnRequest:
    """Request for a supervisor of such processes. It contains no data of a candidate.

    ``role`` is a key of ``enter.ROLES``; ``rlimits`` are soft and hard limits by their names in ``resource``; ``cpu_s``
    limits the processor time of all processes together (0: no limit), ``memory_bytes`` resident memory beside that of
    the zygote, ``tasks`` threads and processes together. ``folder`` with the problem's files is a host path, or a name
    under tier A's folder of folders; "" for none.
    """

    role: str
    frame_bytes: int
    rlimits: dict[str, tuple[int, int]]
    cpu_s: int
    memory_bytes: int
    tasks: int
    tmp_bytes: int
    tmp_files: int
    syscall_policy: SyscallPolicy = SyscallPolicy.THREADS
    folder: str = ""

    def encode(self) -> bytes:
        return json.dumps(asdict(self) | {"syscall_policy": self.syscall_policy.value}).encode()

    @classmethod
    def decode(cls, data: bytes) -> SpawnRequest:
        fields = json.loads(data)
        return cls(**fields | {"syscall_policy": SyscallPolicy(fields["syscall_policy"])})


@dataclass(frozen=True, slots=True)
class BootMessage:
    """Configuration of a zygote: ``open_tier`` of ``tier_module`` returns the isolation to apply.

    ``user`` is the user and group id to switch to, if root starts it, after the import of ``preload`` if
    ``preload_early``: that user may be unable to read the modules. ``readable`` are paths that contained processes may
    read, without the files in ``hidden`` (tier B); in tier A only those beneath ``/tmp``, which the private one covers.
    ``folders`` is the root of the problem folders, or "" (tier B).
    """

    tier_module: str
    user: int | None
    preload: Sequence[str]
    path: Sequence[str]
    readable: Sequence[str]
    hidden: Sequence[str] = ()
    folders: str = ""
    preload_early: bool = False

    def encode(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> BootMessage:
        return cls(**json.loads(data))
