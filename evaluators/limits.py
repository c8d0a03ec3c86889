"""Resource limits of a contained process, set before it reads anything of a candidate."""

from evaluators.contained.bounds import cpu_rlimit
from speciate.domain.limits import Limits

OPEN_FILES = 64
SCRIPT_OPEN_FILES = 512
"""Open files of a script that may start processes: each pipe to one takes two."""
_UNLIMITED = -1  # resource.RLIM_INFINITY


def tasks(limits: Limits, *, processes: bool) -> int:
    """Return how many threads and processes may run at once, which the kernel counts together."""
    if processes:
        return limits.threads + limits.processes
    # Problems of the first version have no ``threads``: their limit on threads is in ``processes``.
    return limits.threads if "threads" in limits.model_fields_set else max(limits.threads, limits.processes)


def rlimits(
    limits: Limits, *, cpu: bool = True, processes: bool = False, file_bytes: int = 0
) -> dict[str, tuple[int, int]]:
    """Return the soft and hard resource limits of one process, by their names in ``resource``.

    Limits of memory and threads are set elsewhere: they depend on the zygote and on the tier. ``cpu`` is False for a
    process that serves many evaluations; ``file_bytes`` the least size of a file that it must be able to write.
    """
    files = SCRIPT_OPEN_FILES if processes else OPEN_FILES
    return {
        "RLIMIT_CPU": cpu_rlimit(limits.cpu_s) if cpu else (_UNLIMITED, _UNLIMITED),
        "RLIMIT_NOFILE": (files, files),
        "RLIMIT_FSIZE": (max(limits.file_bytes, file_bytes),) * 2,
        "RLIMIT_CORE": (0, 0),
    }
