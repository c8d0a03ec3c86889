"""Resource limits of a contained process, set before anything of a candidate is read."""

from __future__ import annotations

import math

from speciate.domain.problem import Limits

OPEN_FILES = 64
_UNLIMITED = -1  # resource.RLIM_INFINITY


def rlimits(limits: Limits, *, cpu: bool = True) -> dict[str, tuple[int, int]]:
    """Return the soft and hard resource limits of one process, by the name ``resource`` gives them.

    Processor time is counted by the kernel in whole seconds: a fraction is rounded up. The process gets SIGXCPU at
    the soft limit and is killed one second later if it ignores that. Memory and threads are not here: what bounds them
    is relative to the warm interpreter, and to the tier.

    Args:
        limits: The problem's limits.
        cpu: Whether to limit processor time; not for a process that serves many evaluations.
    """
    seconds = math.ceil(limits.cpu_s)
    return {
        "RLIMIT_CPU": (seconds, seconds + 1) if cpu else (_UNLIMITED, _UNLIMITED),
        "RLIMIT_NOFILE": (OPEN_FILES, OPEN_FILES),
        "RLIMIT_FSIZE": (limits.file_bytes, limits.file_bytes),
        "RLIMIT_CORE": (0, 0),
    }
