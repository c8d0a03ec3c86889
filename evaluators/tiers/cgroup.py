"""Limit each contained process and its children with a control group, if systemd delegates one to the worker.

Control groups are optional: rlimits bound the address space of each process, and the supervisor counts threads. A group
additionally counts pages, including those of ``/tmp``, and every process that a build command starts. systemd delegates
a group to a service with ``Delegate=memory pids`` and ``DelegateSubgroup=main``. The second option keeps the worker's
own processes out of the delegated group, which must be empty to have children with limits.
"""

import contextlib
import itertools
import os
import time
from functools import cache
from pathlib import Path

from evaluators.limits import tasks
from evaluators.tiers.sandbox import ProcessSpec

_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = ("memory", "pids")
_INTERPRETER_BYTES = 128 << 20  # the zygote's pages that a fork touches
_FIRST = 1  # the process that serves calls
_REMOVE_S = 2.0

_numbers = itertools.count()


@cache
def delegated(root: Path = _ROOT, membership: Path = Path("/proc/self/cgroup")) -> Path | None:
    """Return the parent group that is delegated to this process and may limit its children, or None."""
    for line in membership.read_text("utf-8").splitlines():
        hierarchy, _, path = line.partition("::")
        if hierarchy == "0":
            own = root / path.lstrip("/")
            return next((group for group in own.parents if group != root and _usable(group)), None)
    return None


class ControlGroup:
    """Control group of one contained process, which joins it by writing ``0`` to the descriptor ``members``."""

    def __init__(self, parent: Path, needs: ProcessSpec) -> None:
        self._path = parent / f"speciate-{os.getpid()}-{next(_numbers)}"
        self._path.mkdir()
        try:
            limits = needs.limits
            _set(self._path / "memory.max", limits.memory_bytes + limits.tmp_bytes + _INTERPRETER_BYTES)
            _set(self._path / "pids.max", tasks(limits, processes=needs.syscall_policy.starts_processes) + _FIRST)
            with contextlib.suppress(FileNotFoundError):  # without swap
                _set(self._path / "memory.swap.max", 0)
            self.members = os.open(self._path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            self._path.rmdir()
            raise

    def cpu_s(self) -> float:
        """Return the CPU time of all processes that were in the group, in seconds; 0 if the kernel does not say."""
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The first line is usage_usec (Documentation/admin-guide/cgroup-v2.rst).
            return int((self._path / "cpu.stat").read_text("ascii").split()[1]) / 1e6
        return 0.0

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            _set(self._path / "cgroup.kill", 1)
        deadline = time.monotonic() + _REMOVE_S
        while self._path.exists() and time.monotonic() < deadline:
            with contextlib.suppress(OSError):  # the kernel has not yet released the last process
                self._path.rmdir()
                return
            time.sleep(0.001)


def _set(path: Path, value: int) -> None:
    with path.open("r+b", buffering=0) as file:  # "r+": never create a file
        file.write(f"{value}\n".encode("ascii"))


def _usable(group: Path) -> bool:
    try:
        if os.getxattr(group, "user.delegate") != b"1":
            return False
        (group / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in _CONTROLLERS), "ascii")
        return {*_CONTROLLERS} <= {*(group / "cgroup.subtree_control").read_text("ascii").replace("+", "").split()}
    except OSError:
        return False
