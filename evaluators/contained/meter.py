"""Measure what a contained process and its descendants hold and use: resident memory, threads and processor time.

The kernel limits only the private writable memory of each process (``RLIMIT_DATA``), and counts the stacks that threads
reserve. So the supervisor measures resident memory where no control group does. The kernel limits the processor time of
each process only, so the supervisor adds up that of all.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from .kernel import out_of_the_way
from .proc import ENDED_TIMES, STARTED, THREADS, TICKS, TIMES, ProcFolder

_PAGE = resource.getpagesize()
STACK_BYTES = 8 << 20
"""Memory that a thread reserves for its stack by default."""


class Exceeded(Enum):
    """Limit for which the supervisor stops a process."""

    NOTHING = ""
    THREADS = "threads"
    MEMORY = "memory"
    CPU = "cpu"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of the warm interpreter in bytes; ``data`` as ``RLIMIT_DATA`` counts it."""

    space: int
    data: int
    resident: int

    @classmethod
    def current(cls) -> Footprint:
        with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123
            space, resident, _, _, _, data, _ = (int(pages) * _PAGE for pages in file.read().split())
        return cls(space, data, resident)


class Meter:
    """Reads ``/proc`` for the child of the process that uses it.

    Create it before anything covers ``/proc``: it keeps the folder open, in which process ids are those outside.
    ``ran_s`` is the CPU time of all processes as of the last ``look``, ``resident`` the largest memory in bytes of one
    that ran beside another.
    """

    def __init__(self) -> None:
        self.ran_s = 0.0
        self.resident = 0
        self._pids: list[str] = []
        self._times: dict[tuple[str, bytes], int] = {}
        self._gone = 0  # ticks of processes that it saw earlier
        self._ended, self._dropped = 0, 0  # ticks that parents count for ended children, and that the kernel dropped
        self._folder = out_of_the_way(os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
        self._proc = ProcFolder(self._folder)

    @cached_property
    def _supervisor(self) -> str:
        return os.readlink("self", dir_fd=self._folder)

    def threads(self) -> int:
        fields = [self._proc.stat(pid) for pid in self._proc.children(self._supervisor)]
        return max((int(each[THREADS]) for each in fields if len(each) > THREADS), default=0)

    def look(self) -> None:
        """Find the running processes, and measure ``ran_s``.

        The kernel counts a process that has ended for the parent that waited for it, and drops it if its parent ignores
        ``SIGCHLD``. What was seen of it counts then.
        """
        times, ended = self._read_times()
        if ended < self._ended:  # or a parent was waited for while this read
            times, ended = self._read_times()
        self._dropped += max(self._ended - ended, 0)
        self._gone += sum(own for process, own in self._times.items() if process not in times)
        self._times, self._ended = times, ended
        ran = sum(times.values()) + max(self._gone, ended + self._dropped)
        self.ran_s = max(self.ran_s, ran / TICKS)

    def _read_times(self) -> tuple[dict[tuple[str, bytes], int], int]:
        """Return the ticks of each running process by id and start, and those that they count for ended children."""
        self._pids, times, ended = self._proc.descendants(self._supervisor), {}, 0
        for pid in self._pids:  # parents first: a child that ends meanwhile is left out this time, not counted twice
            fields = self._proc.stat(pid)
            if len(fields) > STARTED:
                times[pid, fields[STARTED]] = sum(map(int, fields[TIMES]))
                ended += sum(map(int, fields[ENDED_TIMES]))
        return times, ended

    def holds_more(self, resident: int) -> bool:
        """Return True if the processes of the last ``look`` hold more bytes together, without pages of files."""
        sizes = [self._held(pid) for pid in self._pids]
        if len(sizes) > 1:
            self.resident = max(self.resident, *(size for _, size in sizes))
        # All resident pages first, which costs a tenth: most programs are far from the limit.
        if sum(size for _, size in sizes) <= resident:
            return False
        return sum(self._own(place, shared=len(sizes) > 1) for place, _ in sizes) > resident

    def _held(self, pid: str) -> tuple[str, int]:
        size = self._resident(pid)
        if not size:  # the first thread may have ended before the others, which still hold the memory
            for thread in self._proc.threads(pid):
                if size := self._resident(place := f"{pid}/task/{thread}"):
                    return place, size
        return pid, size

    def _resident(self, place: str) -> int:
        fields = self._proc.read(f"{place}/statm").split()
        return int(fields[1]) * _PAGE if fields else 0

    def _own(self, place: str, *, shared: bool) -> int:
        """Return the bytes of a process, its share of pages that several processes hold."""
        if shared and (share := _kilobytes(self._proc.read(f"{place}/smaps_rollup"), b"Pss_Anon:", b"Pss_Shmem:")):
            return share << 10
        return _kilobytes(self._proc.read(f"{place}/status"), b"RssAnon:", b"RssShmem:") << 10


def _kilobytes(text: bytes, *names: bytes) -> int:
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(names))
