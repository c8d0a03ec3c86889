"""Tier A, inside: own namespaces for every evaluation, then Landlock and seccomp as a second and third wall.

bubblewrap has already given the zygote a read-only view of system libraries and Python, no network, and its own process
namespace. What one evaluation gets of its own: user, processes, IPC, an empty ``/proc``, and a ``/tmp`` of bounded size
that vanishes with it.
"""

from __future__ import annotations

import os
import resource
from pathlib import Path

from . import kernel, landlock
from .requests import SpawnRequest
from .seccomp import SyscallPolicy, install, template

NAME = "A"

FOLDERS = "/folders"
"""Where bubblewrap shows the files of problems."""

_USER = 1000  # inside; not 0, so that no program regains capabilities
_TMP = "/tmp"  # noqa: S108  # a file system of its own
_SHARED = "/data"


class NamespaceTier:
    """Tier A: fork into namespaces and isolate.

    Args:
        kept: Paths beneath ``/tmp`` that Python needs: what every candidate has of its own there may not cover them.
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
            syscall_policy: template(syscall_policy, changes=True, open_flags=False) for syscall_policy in SyscallPolicy
        }

    def fork(self) -> int:
        """Fork a supervisor: the first process of new namespaces."""
        return kernel.fork_apart()

    def settle(self, order: SpawnRequest) -> None:
        """Make the supervisor's namespaces a place for one candidate."""
        kernel.set_dumpable(True)  # otherwise the files below belong to the machine's root
        user, group = self._ids
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{_USER} {user} 1")
        _write("/proc/self/gid_map", f"{_USER} {group} 1")
        kernel.set_dumpable(False)
        flags = kernel.MS_NOSUID | kernel.MS_NODEV
        no_exec = 0 if order.syscall_policy is SyscallPolicy.PROCESSES else kernel.MS_NOEXEC
        size = f"mode=0700,size={order.tmp_bytes},nr_inodes={order.tmp_files + len(self._parents)}"
        kept = [(path, os.open(path, os.O_PATH)) for path in self._kept]
        kernel.mount("none", _TMP, "tmpfs", flags | no_exec, size)
        for path, fd in kept:
            Path(path).mkdir(parents=True)
            kernel.mount(f"/proc/self/fd/{fd}", path, "", kernel.MS_BIND | kernel.MS_REC)
            os.close(fd)
        kernel.mount("none", "/proc", "tmpfs", flags | kernel.MS_RDONLY, "size=4k")
        if order.folder:
            Path(_TMP + _SHARED).mkdir()
            kernel.mount(f"{FOLDERS}/{order.folder}{_SHARED}", _TMP + _SHARED, "", kernel.MS_BIND)
        kernel.mount("none", FOLDERS, "tmpfs", flags | kernel.MS_RDONLY, "size=4k")
        os.chdir(_TMP)

    def enclose(self, order: SpawnRequest) -> None:
        """Put up the walls around the candidate's own process; nothing of it has been read yet."""
        threads = order.processes + 1  # the supervisor counts: it is a process of the same user and namespace
        resource.setrlimit(resource.RLIMIT_NPROC, (threads, threads))
        kernel.drop_capabilities()
        kernel.forbid_new_privileges()
        look = landlock.READ | (0 if order.syscall_policy is SyscallPolicy.THREADS else landlock.EXECUTE)
        change = look | landlock.CHANGE | landlock.TRUNCATE
        if self._abi:
            landlock.restrict(self._abi, {"/": look, _TMP: change, "/dev/null": look | landlock.WRITE_FILE})
        install(self._filters[order.syscall_policy])

    def tidy(self) -> None:
        """Nothing to remove: the namespaces take everything with them."""


def _write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)
