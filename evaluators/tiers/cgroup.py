"""A control group for each contained process, where the kernel's groups are delegated to us: bounds on all it starts.

Address space bounds one process and threads are counted without it, so nothing depends on it; but the group counts
pages, also those of ``/tmp``, and everything that the build command of another language starts. systemd delegates one
to a service that says ``Delegate=memory pids`` and ``DelegateSubgroup=main`` (the second keeps our own processes out of
the delegated group itself, which must be empty to have children with limits).
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from functools import cache
from pathlib import Path

from speciate.domain.problem import Limits

_ROOT = Path("/sys/fs/cgroup")
_CONTROLLERS = ("memory", "pids")
_INTERPRETER_BYTES = 128 << 20  # the zygote's pages that a fork touches, and the supervisor's
_SUPERVISORS = 2
_REMOVE_S = 2.0

_numbers = itertools.count()


@cache
def delegated(root: Path = _ROOT, membership: Path = Path("/proc/self/cgroup")) -> Path | None:
    """Return the group above our own that was delegated to us and may limit its children, or None.

    Args:
        root: Where the unified hierarchy (version 2) is mounted.
        membership: The kernel's list of the groups that this process is in.
    """
    for line in membership.read_text("utf-8").splitlines():
        hierarchy, _, path = line.partition("::")
        if hierarchy == "0":
            own = root / path.lstrip("/")
            return next((group for group in own.parents if group != root and _usable(group)), None)
    return None


class ControlGroup:
    """One control group, made for one contained process.

    Attributes:
        members: Descriptor: a process that writes ``0`` to it joins the group.
    """

    def __init__(self, parent: Path, limits: Limits) -> None:
        """Make the group.

        Raises:
            OSError: The kernel refuses.
        """
        self._path = parent / f"speciate-{os.getpid()}-{next(_numbers)}"
        self._path.mkdir()
        try:
            memory = limits.memory_bytes + limits.tmp_bytes + _INTERPRETER_BYTES
            _set(self._path / "memory.max", memory)
            _set(self._path / "pids.max", limits.processes + _SUPERVISORS)
            with contextlib.suppress(FileNotFoundError):  # where there is no swap
                _set(self._path / "memory.swap.max", 0)
            self.members = os.open(self._path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            self._path.rmdir()
            raise

    def entered(self) -> None:
        """Close our descriptor, once the order that carries it is sent."""
        os.close(self.members)

    def remove(self) -> None:
        """Kill what is left in the group and remove it."""
        with contextlib.suppress(OSError):
            _set(self._path / "cgroup.kill", 1)
        deadline = time.monotonic() + _REMOVE_S
        while time.monotonic() < deadline:
            try:
                self._path.rmdir()
            except FileNotFoundError:
                return
            except OSError:  # the kernel has not yet let go of the last process
                time.sleep(0.001)
            else:
                return


def _set(path: Path, value: int) -> None:
    with path.open("r+b", buffering=0) as file:  # such files are there or not; none is ever made
        file.write(f"{value}\n".encode("ascii"))


def _usable(group: Path) -> bool:
    """Return whether a group is marked as delegated, and gives its children the controllers that we need."""
    try:
        if os.getxattr(group, "user.delegate") != b"1":
            return False
        wanted = " ".join(f"+{name}" for name in _CONTROLLERS)
        (group / "cgroup.subtree_control").write_text(wanted, "ascii")
        return {*_CONTROLLERS} <= {*(group / "cgroup.subtree_control").read_text("ascii").replace("+", "").split()}
    except OSError:
        return False
