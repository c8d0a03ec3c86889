"""Measure what a contained process and its descendants hold: resident memory, and threads.

The kernel limits only the private writable memory of each process (``RLIMIT_DATA``), and counts the stacks that threads
reserve. So the supervisor measures resident memory where no control group does.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from .kernel import out_of_the_way

_PAGE = resource.getpagesize()
_READ_BYTES = 4096
# Among the fields after the name of a process (man 5 proc_pid_stat): user and system time, threads, start.
_TIMES, _THREADS, _STARTED = slice(11, 13), 17, 19
STACK_BYTES = 8 << 20
"""Memory that a thread reserves for its stack by default."""


class Exceeded(Enum):
    """Limit for which the supervisor stops a process."""

    NOTHING = ""
    THREADS = "threads"
    MEMORY = "memory"


@dataclass(frozen=True, slots=True)
class Footprint:
    """Memory of the warm interpreter, which a program does not pay for.

    Attributes:
        space: Address space in bytes.
        data: Private writable memory in bytes, as ``RLIMIT_DATA`` counts it.
        resident: Resident memory in bytes.
    """

    space: int
    data: int
    resident: int

    @classmethod
    def own(cls) -> Footprint:
        """Return that of this process."""
        with open("/proc/self/statm", "rb", buffering=0) as file:  # noqa: PTH123
            space, resident, _, _, _, data, _ = (int(pages) * _PAGE for pages in file.read().split())
        return cls(space, data, resident)


class Meter:
    """Reads ``/proc`` for the child of the process that uses it.

    Create it before anything covers ``/proc``: it keeps the folder open, in which process ids are those outside.

    Attributes:
        times: CPU time, in the kernel's ticks, of each process that it saw beside another, by id and start. The kernel
            drops the usage of children if their parent ignores ``SIGCHLD``.
        resident: Largest resident memory of one of them, in bytes.
    """

    def __init__(self) -> None:
        self.times: dict[tuple[str, bytes], int] = {}
        self.resident = 0
        self._proc = out_of_the_way(os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    @cached_property
    def _supervisor(self) -> str:
        return os.readlink("self", dir_fd=self._proc)

    def threads(self) -> int:
        """Return the number of threads of the first process."""
        fields = [self._read(f"{pid}/stat").rpartition(b")")[2].split() for pid in self._children(self._supervisor)]
        return max((int(each[_THREADS]) for each in fields if len(each) > _THREADS), default=0)

    def holds_more(self, resident: int) -> bool:
        """Return True if all processes together hold more than that many bytes, without pages of files."""
        found = self._descendants()
        held = [self._held(pid) for pid in found]
        if len(found) > 1:
            self._note(found, max(size for _, size in held))
        # All resident pages first, which costs a tenth: most programs are far from the limit.
        if sum(size for _, size in held) <= resident:
            return False
        return sum(self._own(place, shared=len(held) > 1) for place, _ in held) > resident

    def _note(self, found: list[str], resident: int) -> None:
        self.resident = max(self.resident, resident)
        for pid in found:
            fields = self._read(f"{pid}/stat").rpartition(b")")[2].split()
            if len(fields) > _STARTED:
                self.times[pid, fields[_STARTED]] = sum(map(int, fields[_TIMES]))

    def _held(self, pid: str) -> tuple[str, int]:
        """Return a folder that describes the memory of a process, and its resident bytes."""
        size = self._resident(pid)
        if not size:  # the first thread may have ended before the others, which still hold the memory
            for thread in self._threads_of(pid):
                if size := self._resident(place := f"{pid}/task/{thread}"):
                    return place, size
        return pid, size

    def _resident(self, place: str) -> int:
        fields = self._read(f"{place}/statm").split()
        return int(fields[1]) * _PAGE if fields else 0

    def _own(self, place: str, *, shared: bool) -> int:
        """Return the bytes of a process, its share of pages that several processes hold."""
        if shared and (found := _kilobytes(self._read(f"{place}/smaps_rollup"), b"Pss_Anon:", b"Pss_Shmem:")):
            return found << 10
        return _kilobytes(self._read(f"{place}/status"), b"RssAnon:", b"RssShmem:") << 10

    def _descendants(self) -> list[str]:
        found = self._children(self._supervisor)
        for pid in found:  # the list grows during the loop
            for thread in self._threads_of(pid):  # the kernel lists children by the thread that started them
                found += self._children(pid, thread)
        return found

    def _children(self, pid: str, thread: str = "") -> list[str]:
        return self._read(f"{pid}/task/{thread or pid}/children").decode("ascii").split()

    def _threads_of(self, pid: str) -> list[str]:
        try:
            fd = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._proc)
        except OSError:
            return []
        try:
            return os.listdir(fd)  # noqa: PTH208  # relative to an open folder
        except OSError:
            return []
        finally:
            os.close(fd)

    def _read(self, path: str) -> bytes:
        """Return the content of a file; empty if the process has ended or may not be read."""
        try:
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._proc)
        except OSError:
            return b""
        try:
            return read_whole(fd)
        except OSError:
            return b""
        finally:
            os.close(fd)


def read_whole(fd: int) -> bytes:
    """Return the content of an open ``/proc`` file, however long."""
    content = part = os.read(fd, _READ_BYTES)
    while len(part) > _READ_BYTES // 2:  # the kernel returns whole entries, so a full part may have fewer bytes
        part = os.read(fd, _READ_BYTES)
        content += part
    return content


def _kilobytes(text: bytes, *names: bytes) -> int:
    """Return the sum of some lines of a status file."""
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith(names))
