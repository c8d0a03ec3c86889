"""Measure the time that a contained process waits for a processor, and the processor time of all that it starts.

The kernel counts the wait of every task (``/proc/PID/schedstat``: nanoseconds running, and nanoseconds waiting to run).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Final

from evaluators.contained.meter import read_whole

_TICKS: Final = os.sysconf("SC_CLK_TCK")
# Fields after the name: user and system time, and both of ended children (man 5 proc_pid_stat).
_TIMES: Final = slice(11, 15)
_THREADS: Final = 17


class SchedulingDelay:
    """Scheduling delay of a process; 0 if the kernel does not report it.

    Args:
        pid: Process id in the worker's namespace; 0 if unknown.
        supervisor: That of its supervisor, which adopts processes that it leaves; 0 if unknown.
        cores: Processors that it may use at a time.
        group_s: Returns the CPU time of its control group in seconds, if it has one.

    Attributes:
        own_ran_s: CPU time of its first thread in seconds, as of the last ``own_s``.
    """

    def __init__(
        self, pid: int, supervisor: int = 0, cores: int = 1, group_s: Callable[[], float] | None = None
    ) -> None:
        self._pid, self._root, self.cores, self._group_s = pid, supervisor, cores, group_s
        # Kept open: some evaluations read it a thousand times.
        self._fd = _open(f"/proc/{pid}/schedstat") if pid else None
        self._known = self._fd is not None
        self._own_s = self.own_ran_s = 0.0

    def own_s(self) -> float:
        """Return the delay of its first thread in seconds; keeps its last value after the process ends."""
        if self._fd is not None:
            try:
                ran, waited, *_ = os.pread(self._fd, 64, 0).split()
                self.own_ran_s, self._own_s = int(ran) / 1e9, int(waited) / 1e9
            except OSError:  # the process has ended
                self.close()
        return self._own_s

    def others_s(self) -> float:
        """Return the longest delay in seconds of any of its other threads and living descendants."""
        if not self._pid:
            return 0.0
        threads = [f"/proc/{self._pid}/task/{thread}" for thread in _threads(self._pid) if thread != str(self._pid)]
        return max(map(_delay_s, [*threads, *(f"/proc/{pid}" for pid in _below(self._pid))]), default=0.0)

    def ran_s(self) -> float:
        """Return the CPU time in seconds of the process and what it started, also what ended and was waited for."""
        if not self._pid:
            return 0.0
        if self._group_s is not None:
            return self._group_s()
        living = _below(self._root) if self._root else [self._pid, *_below(self._pid)]
        return sum(map(_ran_s, living))

    def others(self) -> list[int]:
        """Return the other living processes that it started, also those whose own parent has ended."""
        return [pid for pid in _below(self._root) if pid != self._pid and not _ended(pid)] if self._root else []

    @property
    def replaced(self) -> bool:
        """True if the process has ended and another one has its id."""
        self.own_s()  # the open file stays that of the process
        return self._known and self._fd is None and not _ended(self._pid)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _below(pid: int) -> list[int]:
    found = _children(pid)
    for child in found:  # the list grows during the loop
        found += _children(child)
    return found


def _children(pid: int) -> list[int]:
    # The kernel lists children by the thread that started them.
    lists = [_read(f"/proc/{pid}/task/{thread}/children") for thread in _threads(pid)]
    return [int(child) for each in lists for child in each.split()]


def _threads(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/task")  # noqa: PTH208  # asked often, and paths take most of its time
    except OSError:
        return []


def _ended(pid: int) -> bool:
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    # The state is that of the first thread, which may end before the others.
    return not fields or (fields[0] == b"Z" and fields[_THREADS] == b"1")


def _delay_s(place: str) -> float:
    fields = _read(f"{place}/schedstat").split()
    return int(fields[1]) / 1e9 if fields else 0.0


def _ran_s(pid: int) -> float:
    return sum(map(int, _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()[_TIMES])) / _TICKS


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
