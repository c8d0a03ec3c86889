"""Enter a contained process: a supervisor's fork gives up its resources, isolates itself and runs a program.

The supervisor does beforehand whatever it can: every page that a fork writes to is copied.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
from _signal import SIGINT, default_int_handler, signal  # type: ignore[import-not-found]  # as in ``supervise``
from collections.abc import Callable, Sequence
from typing import NoReturn, Protocol

from . import author, candidate, command, in_process, kernel
from .bounds import RLimits
from .requests import READY, SpawnRequest
from .wire import Wire

ROLES: dict[str, Callable[[Wire], None]] = {
    "candidate": candidate.serve,
    "author": author.serve,
    "command": command.serve,
    "in_process": in_process.serve,
}
"""Program of each role."""

CHANNEL_FD, CONTROL_FD = 3, 4
"""Descriptors above standard error: the process's channel, and its supervisor's connection until it is ready."""


class Tier(Protocol):
    """Isolation of one tier, inside the sandbox."""

    bounds_threads: bool
    """True if the kernel limits the number of threads; otherwise the supervisor counts them."""
    reusable: bool
    """True if a second process of the supervisor sees nothing of the first; set by ``setup_supervisor``."""
    folder: str
    """Folder that ``setup_candidate`` creates and ``cleanup`` removes; the worker removes it if the supervisor was
    killed. Empty if there is none. Never a shared folder such as TMPDIR."""

    def precompute(self, order: SpawnRequest) -> None: ...

    def fork(self) -> int:
        """Fork a supervisor; returns twice, as ``os.fork`` does."""

    def setup_supervisor(self) -> None: ...

    def setup_candidate(self, order: SpawnRequest) -> None:
        """Prepare the environment of one process, which inherits it from its supervisor."""

    def isolate(self, order: SpawnRequest) -> None: ...

    def cleanup(self) -> None:
        """Remove files that a candidate may have left, after all its processes have ended."""


def enter(tier: Tier, order: SpawnRequest, limits: RLimits, cgroup: Sequence[int]) -> NoReturn:
    code = 1
    try:
        kernel.die_with_parent()
        if order.syscall_policy.starts_processes:
            signal(SIGINT, default_int_handler)
        os.setpgid(0, 0)  # to kill as a group; not a session, which some kernels schedule as a group of its own
        for fd in cgroup:
            os.write(fd, b"0")
        for which, values in limits:
            resource.setrlimit(which, values)
        tier.isolate(order)
        gc.enable()
        os.write(CONTROL_FD, READY + tier.folder.encode("utf-8", "surrogateescape"))
        os.closerange(CONTROL_FD, 1 << 16)
        ROLES[order.role](Wire(CHANNEL_FD, order.frame_bytes))
        code = 0
    except BaseException as error:  # noqa: BLE001  # whatever happens, this fork must never go on as the supervisor
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)
