"""What the kernel enforces on a contained process: resource limits, set before anything of a candidate is read."""

from __future__ import annotations

import math

from speciate.domain.problem import Limits

OPEN_FILES = 64
_UNLIMITED = -1  # resource.RLIM_INFINITY


def rlimits(limits: Limits, *, cpu: bool = True, own_user: bool = False) -> dict[str, tuple[int, int]]:
    """Return the soft and hard resource limits of one process, by the name ``resource`` gives them.

    Processor time is counted by the kernel in whole seconds: a fraction is rounded up. The process gets SIGXCPU at
    the soft limit and is killed one second later if it ignores that.

    Args:
        limits: The problem's limits.
        cpu: Whether to limit processor time; not for a process that serves many evaluations.
        own_user: Whether the process has a user id of its own. NPROC counts every process of a user on the machine,
            so without that it would fail candidates for what others run (and it does not bind root at all).
    """
    seconds = math.ceil(limits.cpu_s)
    wanted = {
        "RLIMIT_CPU": (seconds, seconds + 1) if cpu else (_UNLIMITED, _UNLIMITED),
        "RLIMIT_AS": (limits.memory_bytes, limits.memory_bytes),
        "RLIMIT_NOFILE": (OPEN_FILES, OPEN_FILES),
        "RLIMIT_FSIZE": (limits.file_bytes, limits.file_bytes),
        "RLIMIT_CORE": (0, 0),
    }
    if own_user:
        wanted["RLIMIT_NPROC"] = (limits.processes, limits.processes)
    return wanted
