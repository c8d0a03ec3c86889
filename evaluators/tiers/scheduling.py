"""Measure the time that a contained process waits for a processor, and the processor time of all that it starts.

The kernel counts the wait of every task (``/proc/PID/schedstat``: nanoseconds running, and nanoseconds waiting to run).
"""

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from evaluators.contained.proc import ENDED_TIMES, THREADS, TICKS, TIMES, ProcFolder

_PROC: Final = ProcFolder()


class SchedulingDelay:
    """Scheduling delay of a process; 0 if the kernel does not report it.

    ``pid`` and that of its ``supervisor``, which adopts processes that it leaves, are ids in the worker's namespace, 0
    if unknown; ``group_s`` returns the CPU time of its control group. ``own_ran_s`` is the CPU time of its first thread
    in seconds, as of the last ``own_s``.
    """

    def __init__(
        self, pid: int, supervisor: int = 0, cores: int = 1, group_s: Callable[[], float] | None = None
    ) -> None:
        self._pid, self._root, self.cores, self._group_s = pid, supervisor, cores, group_s
        # Kept open: some evaluations read it a thousand times.
        self._fd: int | None = None
        with suppress(OSError):
            self._fd = os.open(f"/proc/{pid}/schedstat", os.O_RDONLY) if pid else None
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
        pid = str(self._pid)
        threads = [f"{pid}/task/{thread}" for thread in _PROC.threads(pid) if thread != pid]
        return max(map(_delay_s, [*threads, *_PROC.descendants(pid)]), default=0.0)

    def ran_s(self) -> float:
        """Return the CPU time in seconds of the process and what it started, also what ended and was waited for."""
        if not self._pid:
            return 0.0
        if self._group_s is not None:
            return self._group_s()
        pid = str(self._pid)
        living = _PROC.descendants(str(self._root)) if self._root else [pid, *_PROC.descendants(pid)]
        return sum(map(_ran_s, living))

    def others(self) -> list[int]:
        """Return the other living processes that it started, also those whose own parent has ended."""
        before: list[str] | None = None
        while self._root:
            below = _PROC.descendants(str(self._root))
            others = [pid for pid in map(int, below) if pid != self._pid and not _ended(pid)]
            # The supervisor may adopt a process just after its children were read: read again until two agree.
            if others or below == before:
                return others
            before = below
        return []

    @property
    def replaced(self) -> bool:
        """True if the process has ended and another one has its id."""
        self.own_s()  # the open file stays that of the process
        return self._known and self._fd is None and not _ended(self._pid)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _ended(pid: int) -> bool:
    fields = _PROC.stat(str(pid))
    # The state is that of the first thread, which may end before the others.
    return not fields or (fields[0] == b"Z" and fields[THREADS] == b"1")


def _delay_s(place: str) -> float:
    fields = _PROC.read(f"{place}/schedstat").split()
    return int(fields[1]) / 1e9 if fields else 0.0


def _ran_s(pid: str) -> float:
    fields = _PROC.stat(pid)
    return sum(map(int, fields[TIMES] + fields[ENDED_TIMES])) / TICKS
