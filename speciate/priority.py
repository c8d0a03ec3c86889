"""Lower the scheduling priority of workers, so that the API stays responsive on a busy machine.

A search uses every CPU, and a response that takes two milliseconds would wait behind dozens of processes. Two values
set the priority: the niceness of a process (man 7 sched) and, where Linux schedules sessions as groups (autogroup), the
niceness of its session, which then outranks the first. Raising either needs no privilege.
"""

import os
import time
from contextlib import suppress
from errno import EAGAIN
from pathlib import Path
from typing import Final

_TRIES: Final = 20
_PAUSE_S: Final = 0.11  # Linux lets an unprivileged user set an autogroup ten times a second


def lower_priority(nice: int) -> None:
    """Lower the priority of this process, of its later children, and of its session if it leads one.

    A worker that is started by hand shares the session of a terminal, whose other commands must keep their priority. A
    niceness that is higher already stays.
    """
    for thread in _threads():  # on Linux, niceness belongs to a thread
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
    try:
        return int(Path("/proc/self/autogroup").read_text("ascii").rpartition(" ")[2])
    except (OSError, ValueError):
        return 0


def set_group_nice(nice: int, pid: int | None = None) -> None:
    """Set the niceness of the session of a process (None: this one); do nothing without autogroups or permission."""
    if not nice:
        return
    path = Path("/proc", "self" if pid is None else str(pid), "autogroup")
    for _ in range(_TRIES):
        try:
            # Not write_text, which would create a missing file.
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
