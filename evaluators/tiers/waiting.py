"""How long a contained process has waited for a processor: time on the clock that is not its own.

The kernel counts it (``/proc/PID/schedstat``, nanoseconds in which a task was ready to run and did not). Of the process
that serves a candidate, the first thread counts, and of what it has started, the child that has waited longest: whoever
waits for a child does not wait for a processor.
"""

from __future__ import annotations

import os


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
    # Empty where the process has ended, or the kernel does not list them.
    return [int(child) for child in _fields(f"/proc/{pid}/task/{pid}/children")]


def _delay_s(pid: int) -> float:
    fields = _fields(f"/proc/{pid}/schedstat")
    return int(fields[1]) / 1e9 if len(fields) > 1 else 0.0


def _fields(path: str) -> list[bytes]:
    # Not pathlib: every evaluation pays for this twice, and some for every call.
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError:
        return []
    try:
        return os.read(fd, 4096).split()
    except OSError:  # it ended in between
        return []
    finally:
        os.close(fd)
