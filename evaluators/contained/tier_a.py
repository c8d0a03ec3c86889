"""Tier A, inside the sandbox: new namespaces for every evaluation, then Landlock and seccomp as further layers.

bubblewrap has already confined the zygote: a read-only view of system libraries and Python, no network, and a process
namespace. Each evaluation gets its own user, process and IPC namespaces, a ``/proc`` that describes the processor only,
and a ``/tmp`` of limited size that disappears with it.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from . import kernel, landlock
from .requests import SpawnRequest
from .seccomp import Filter, SyscallPolicy, template

NAME = "A"

FOLDERS = "/folders"
"""Mount point of the problems' files inside bubblewrap."""

MACHINE = "/machine"
"""Folder inside bubblewrap with the files that a candidate finds in ``/proc``: those of the processor only."""

_USER = 1000  # inside; not 0, so that no program regains capabilities
_TMP = "/tmp"  # noqa: S108  # a file system of its own
_SHARED = "/data"


class NamespaceTier:
    """Tier A: fork into namespaces and isolate.

    Args:
        kept: Paths beneath ``/tmp`` that Python needs and that a candidate's private ``/tmp`` must not cover.
    """

    bounds_threads = True
    folder = ""

    def __init__(self, kept: tuple[str, ...]) -> None:
        self._kept = kept
        self._parents = {parent for path in kept for parent in (path, *map(str, Path(path).parents))} - {"/", _TMP}
        self._abi = landlock.abi()
        self._ids = os.getuid(), os.getgid()
        os.environ["HOME"] = os.environ["TMPDIR"] = _TMP
        self._filters = {
            syscall_policy: Filter(template(syscall_policy, changes=True, open_flags=False))
            for syscall_policy in SyscallPolicy
        }

    def fork(self) -> int:
        """Fork a supervisor: the first process of new namespaces."""
        return kernel.fork_apart()

    def settle(self, order: SpawnRequest) -> None:
        """Set up the supervisor's namespaces for one candidate."""
        kernel.set_dumpable(True)  # otherwise root owns the files below
        user, group = self._ids
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{_USER} {user} 1")
        _write("/proc/self/gid_map", f"{_USER} {group} 1")
        kernel.set_dumpable(False)
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        no_exec = 0 if order.syscall_policy.starts_processes else kernel.MS_NOEXEC
        size = f"mode=0700,size={order.tmp_bytes},nr_inodes={order.tmp_files + len(self._parents)}"
        kept = [(path, os.open(path, os.O_PATH)) for path in self._kept]
        kernel.mount("none", _TMP, "tmpfs", flags | no_exec, size)
        for path, fd in kept:
            Path(path).mkdir(parents=True)
            kernel.mount(f"/proc/self/fd/{fd}", path, "", kernel.MS_BIND | kernel.MS_REC)
            os.close(fd)
        kernel.mount(MACHINE, "/proc", "", kernel.MS_BIND | kernel.MS_REC)
        if order.folder:
            Path(_TMP + _SHARED).mkdir()
            kernel.mount(f"{FOLDERS}/{order.folder}{_SHARED}", _TMP + _SHARED, "", kernel.MS_BIND)
        kernel.mount("none", FOLDERS, "tmpfs", flags | kernel.MS_RDONLY, "size=4k")
        os.chdir(_TMP)

    def enclose(self, order: SpawnRequest) -> None:
        """Isolate the candidate's process before it reads anything of the candidate."""
        tasks = order.tasks + 1  # includes the supervisor: same user and namespace
        resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))
        if order.syscall_policy is SyscallPolicy.SCRIPT:
            # Forked processes share pages, and only of a dumpable process the supervisor can read how many.
            kernel.set_dumpable(True)
        kernel.drop_capabilities()
        kernel.forbid_new_privileges()
        look = landlock.READ | (0 if order.syscall_policy is SyscallPolicy.THREADS else landlock.EXECUTE)
        change = look | landlock.CHANGE | landlock.TRUNCATE
        if self._abi:
            landlock.restrict(self._abi, {"/": look, _TMP: change, "/dev/null": look | landlock.WRITE_FILE})
        self._filters[order.syscall_policy].install()

    def tidy(self) -> None:
        """Do nothing: the kernel removes everything with the namespaces."""


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
