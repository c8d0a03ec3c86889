"""Time that a contained process has waited for a processor, which its wall limit does not count.

The kernel counts it for every task (``/proc/PID/schedstat``: nanoseconds it ran, and was ready to run and did not). Of
the process that serves a candidate, the first thread counts, unless it waited for its own others. One that runs
commands sleeps meanwhile, so of what it has started, the one that waited longest counts as well, unless they are many
and waited for each other.
"""

from __future__ import annotations

import os
from typing import Final

_TICKS: Final = os.sysconf("SC_CLK_TCK")
# After the name: user, system, and the same of children that have ended (man 5 proc_pid_stat).
_OWN_TIMES: Final = slice(11, 13)
_TIMES: Final = slice(11, 15)


class SchedulingDelay:
    """Reads it, for the child of one supervisor. All is 0 where the kernel does not tell.

    Args:
        supervisor: Its process id, as seen from here; 0 where it is not known.

    Attributes:
        ran_s: Seconds of processor time of the process's first thread, as of the last ``own_s``.
    """

    def __init__(self, supervisor: int) -> None:
        self._supervisor, self._pid = supervisor, 0
        self._fd: int | None = None
        self._own_s = 0.0
        self.ran_s = 0.0

    def own_s(self) -> float:
        """Return the seconds of the process itself; they stay when it ends.

        The first call must come before anything of a candidate runs: later, the supervisor may have other children.
        """
        if self._supervisor:
            self._pid = next(iter(_children(self._supervisor)), 0)
            self._supervisor = 0
            self._fd = _open(f"/proc/{self._pid}/schedstat") if self._pid else None
        if self._fd is not None:
            try:
                # One open file, read again and again: some evaluations ask a thousand times.
                self.ran_s, self._own_s = (int(field) / 1e9 for field in os.pread(self._fd, 64, 0).split()[:2])
            except OSError:  # it has ended
                self.close()
        return self._own_s

    def others_ran_s(self) -> float:
        """Return the seconds of processor time of all its threads but the first, in their whole life."""
        return max(_ran_s(self._pid, _OWN_TIMES) - self.ran_s, 0.0) if self._pid else 0.0

    def below_s(self, enough_s: float) -> float:
        """Return the most seconds of any process below it that lives.

        Args:
            enough_s: Seconds of processor time with which all of them together have not been kept waiting by others.
        """
        below = _below(self._pid) if self._pid else []
        if sum(map(_ran_s, below)) >= enough_s:
            return 0.0
        return max((_delay_s(pid) for pid in below), default=0.0)

    def close(self) -> None:
        """Close the file that is read."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _below(pid: int) -> list[int]:
    found = _children(pid)
    for child in found:  # grows while it is walked
        found += _children(child)
    return found


def _children(pid: int) -> list[int]:
    return [int(child) for child in _read(f"/proc/{pid}/task/{pid}/children").split()]


def _delay_s(pid: int) -> float:
    fields = _read(f"/proc/{pid}/schedstat").split()
    return int(fields[1]) / 1e9 if fields else 0.0


def _ran_s(pid: int, which: slice = _TIMES) -> float:
    return sum(map(int, _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[which])) / _TICKS


def _open(path: str) -> int | None:
    try:
        return os.open(path, os.O_RDONLY)
    except OSError:
        return None


def _read(path: str) -> bytes:
    """Return a file of ``/proc``; nothing where the process has ended, or the kernel has no such file."""
    fd = _open(path)
    if fd is None:
        return b""
    try:
        return os.read(fd, 4096)
    except OSError:
        return b""
    finally:
        os.close(fd)
