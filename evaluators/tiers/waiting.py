"""How long a contained process has waited for a processor: time on the clock that is not its own.

The kernel counts it (``/proc/PID/schedstat``, nanoseconds in which a task was ready to run and did not). Of the process
that serves a candidate, the first thread counts, and of what it has started, the child that has waited longest: whoever
waits for a child does not wait for a processor.
"""

from __future__ import annotations

from pathlib import Path


class Waiting:
    """Reads it, for the child of one supervisor.

    Args:
        supervisor: Its process id, as seen from here; 0 where it is not known.
    """

    def __init__(self, supervisor: int) -> None:
        self._supervisor, self._pid = supervisor, 0
        self._most_s = 0.0

    def seconds(self) -> float:
        """Return the seconds so far; they stay when the process ends. 0 where the kernel does not tell.

        The first call must come before anything of a candidate runs: later, the supervisor may have other children.
        """
        if not self._pid:
            self._pid = next(iter(_children(self._supervisor)), 0) if self._supervisor else 0
        if self._pid:
            below = max(map(_delay_s, _children(self._pid)), default=0.0)
            self._most_s = max(self._most_s, _delay_s(self._pid) + below)
        return self._most_s


def _children(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()]
    except OSError:  # it has ended, or the kernel does not list them
        return []


def _delay_s(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_bytes().split()[1]) / 1e9
    except (OSError, IndexError):
        return 0.0
