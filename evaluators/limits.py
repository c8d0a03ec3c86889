"""Resource limits of a contained process, set before it reads anything of a candidate."""

from __future__ import annotations

import math

from speciate.domain.problem import Limits

OPEN_FILES = 64
_UNLIMITED = -1  # resource.RLIM_INFINITY


def rlimits(limits: Limits, *, cpu: bool = True) -> dict[str, tuple[int, int]]:
    """Return the soft and hard resource limits of one process, by their names in ``resource``.

    The kernel counts CPU time in whole seconds, so fractions are rounded up. It sends SIGXCPU at the soft limit and
    SIGKILL one second later. Limits of memory and threads are set elsewhere, because they depend on the zygote and on
    the tier.

    Args:
        limits: The problem's limits.
        cpu: True to limit CPU time; False for a process that serves many evaluations.
    """
    seconds = math.ceil(limits.cpu_s)
    return {
        "RLIMIT_CPU": (seconds, seconds + 1) if cpu else (_UNLIMITED, _UNLIMITED),
        "RLIMIT_NOFILE": (OPEN_FILES, OPEN_FILES),
        "RLIMIT_FSIZE": (limits.file_bytes, limits.file_bytes),
        "RLIMIT_CORE": (0, 0),
    }
