"""Read processes from ``/proc``; whatever a process that has ended, or may not be read, would say is empty."""

from __future__ import annotations

import os

_READ_BYTES = 4096
# Fields of ``stat`` after the name of a process (man 5 proc_pid_stat): user and system time, both of ended children
# that it has waited for, threads, start.
TIMES, ENDED_TIMES, THREADS, STARTED = slice(11, 13), slice(13, 15), 17, 19
TICKS = os.sysconf("SC_CLK_TCK")


class ProcFolder:
    """``/proc``, by its path or, where something covers it, by a descriptor of the open folder."""

    def __init__(self, fd: int | None = None) -> None:
        self._fd, self._root = fd, "/proc/" if fd is None else ""

    def read(self, path: str) -> bytes:
        fd = self._open(path)
        if fd is None:
            return b""
        try:
            content = part = os.read(fd, _READ_BYTES)
            while len(part) > _READ_BYTES // 2:  # the kernel returns whole entries: a full part may have fewer bytes
                part = os.read(fd, _READ_BYTES)
                content += part
        except OSError:
            return b""
        finally:
            os.close(fd)
        return content

    def stat(self, pid: str) -> list[bytes]:
        """Return the fields after the name in a process's ``stat``: state, parent, …"""
        return self.read(f"{pid}/stat").rpartition(b")")[2].split()

    def threads(self, pid: str) -> list[str]:
        fd = self._open(f"{pid}/task", os.O_DIRECTORY)
        if fd is None:
            return []
        try:
            return os.listdir(fd)  # noqa: PTH208  # relative to an open folder
        except OSError:
            return []
        finally:
            os.close(fd)

    def children(self, pid: str) -> list[str]:
        # The kernel lists children by the thread that started them.
        lists = [self.read(f"{pid}/task/{thread}/children") for thread in self.threads(pid)]
        return [child.decode("ascii") for each in lists for child in each.split()]

    def descendants(self, pid: str) -> list[str]:
        """Return every process beneath one, parents first."""
        pids = self.children(pid)
        for each in pids:  # the list grows during the loop
            pids += self.children(each)
        return pids

    def _open(self, path: str, flags: int = 0) -> int | None:
        try:
            return os.open(f"{self._root}{path}", os.O_RDONLY | os.O_CLOEXEC | flags, dir_fd=self._fd)
        except OSError:
            return None
