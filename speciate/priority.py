"""Who goes first on a busy machine: answers before searches.

A search takes every processor it gets, and an answer that costs two milliseconds would wait its turn among dozens of
processes. Two numbers say who stands back: the niceness of a process (man 7 sched), and, where Linux schedules sessions
as groups, that of its session, beside which the first only orders the members. Raising either needs no privilege.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from errno import EAGAIN
from pathlib import Path
from typing import Final

_TRIES: Final = 20
_PAUSE_S: Final = 0.11  # an ordinary user may set one group of the machine every tenth of a second


def lower_priority(nice: int) -> None:
    """Let others go first: this process and what it starts from now on, and its session if it has one of its own.

    A worker that is started by hand shares the session of a terminal, whose other commands it must not hold back.

    Args:
        nice: Niceness from 0, which changes nothing, to 19; a process that stands further back already stays there.
    """
    for thread in _threads():  # to Linux, niceness belongs to a thread
        with suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, thread, max(nice, os.getpriority(os.PRIO_PROCESS, thread)))
    if os.getsid(0) == os.getpid():
        set_group_nice(max(nice, group_nice()))


def _threads() -> list[int]:
    try:
        return [int(task.name) for task in Path("/proc/self/task").iterdir()]
    except OSError:
        return [0]


def group_nice() -> int:
    """Return the niceness of this process's session; 0 where sessions are no groups."""
    try:
        return int(Path("/proc/self/autogroup").read_text("ascii").rpartition(" ")[2])
    except (OSError, ValueError):
        return 0


def set_group_nice(nice: int, pid: int | None = None) -> None:
    """Set the niceness of a session where sessions are groups; elsewhere, or where it is not ours to set, do nothing.

    Args:
        nice: Niceness; 0, where a session begins, is not set.
        pid: A process of the session; None means this one.
    """
    if not nice:
        return
    path = Path("/proc", "self" if pid is None else str(pid), "autogroup")
    for _ in range(_TRIES):
        try:
            # Not write_text, which would create the file where there is none.
            fd = os.open(path, os.O_WRONLY)
            try:
                os.write(fd, str(nice).encode())
            finally:
                os.close(fd)
        except OSError as error:
            if error.errno != EAGAIN:
                return
            time.sleep(_PAUSE_S)
        else:
            return
