"""Measure the time that a contained process waits for a processor, which its wall limit does not count.

The kernel counts it for every task (``/proc/PID/schedstat``: nanoseconds running, and nanoseconds waiting to run). For
the process that serves a candidate, only the first thread counts, unless it waited for its own other threads. A process
that runs commands sleeps meanwhile, so its longest-waiting descendant counts as well, unless several descendants waited
for each other.
"""

from __future__ import annotations

import os
from typing import Final

from evaluators.contained.meter import read_whole

_TICKS: Final = os.sysconf("SC_CLK_TCK")
# Fields after the name: user and system time, and both of ended children (man 5 proc_pid_stat).
_OWN_TIMES: Final = slice(11, 13)
_TIMES: Final = slice(11, 15)
_THREADS: Final = 17


class SchedulingDelay:
    """Scheduling delay of a process; 0 if the kernel does not report it.

    Args:
        pid: Process id in the broker's namespace; 0 if unknown.
        supervisor: That of its supervisor, which adopts processes that it leaves; 0 if unknown.

    Attributes:
        ran_s: CPU time of the process's first thread in seconds, as of the last ``own_s``.
    """

    def __init__(self, pid: int, supervisor: int = 0) -> None:
        self._pid, self._root = pid, supervisor
        # Kept open: some evaluations read it a thousand times.
        self._fd = _open(f"/proc/{pid}/schedstat") if pid else None
        self._known = self._fd is not None
        self._own_s = 0.0
        self.ran_s = 0.0

    def own_s(self) -> float:
        """Return the delay of the process itself in seconds; keeps its last value after the process ends."""
        if self._fd is not None:
            try:
                ran, waited, *_ = os.pread(self._fd, 64, 0).split()
                self.ran_s, self._own_s = int(ran) / 1e9, int(waited) / 1e9
            except OSError:  # the process has ended
                self.close()
        return self._own_s

    def others_ran_s(self) -> float:
        """Return the total CPU time in seconds of all its threads but the first."""
        return max(_ran_s(self._pid, _OWN_TIMES) - self.ran_s, 0.0) if self._pid else 0.0

    def below_s(self, enough_s: float) -> float:
        """Return the longest delay in seconds of any living descendant.

        Args:
            enough_s: Total CPU time in seconds above which the descendants do not count as delayed by other processes.
        """
        below = _below(self._pid) if self._pid else []
        if sum(map(_ran_s, below)) >= enough_s:
            return 0.0
        return max((_delay_s(pid) for pid in below), default=0.0)

    def others(self) -> list[int]:
        """Return the other living processes that it started, also those whose own parent has ended."""
        return [pid for pid in _below(self._root) if pid != self._pid and not _ended(pid)] if self._root else []

    @property
    def replaced(self) -> bool:
        """True if the process has ended and another one has its id."""
        self.own_s()  # the open file stays that of the process
        return self._known and self._fd is None and not _ended(self._pid)

    def close(self) -> None:
        """Close the open ``/proc`` file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _below(pid: int) -> list[int]:
    found = _children(pid)
    for child in found:  # the list grows during the loop
        found += _children(child)
    return found


def _children(pid: int) -> list[int]:
    try:
        # The kernel lists children by the thread that started them.
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  # asked often, and paths take most of its time
    except OSError:
        return []
    return [int(child) for thread in threads for child in _read(f"/proc/{pid}/task/{thread}/children").split()]


def _ended(pid: int) -> bool:
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    # The state is that of the first thread, which may end before the others.
    return not fields or (fields[0] == b"Z" and fields[_THREADS] == b"1")


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
    """Return the content of a ``/proc`` file; empty if the process has ended or the kernel has no such file."""
    fd = _open(path)
    if fd is None:
        return b""
    try:
        return read_whole(fd)
    except OSError:
        return b""
    finally:
        os.close(fd)
