"""Tier A, inside the sandbox: namespaces that hold one candidate at a time, then Landlock and seccomp as more layers.

bubblewrap has already confined the zygote: a read-only view of system libraries and Python, no network, and a process
namespace. Each supervisor has its own user, process and mount namespaces, and a ``/proc`` that describes the processor
and the memory limit only. Each evaluation gets a new IPC namespace and a new ``/tmp`` of limited size that disappears
with it.
"""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Sequence
from pathlib import Path

from . import kernel, landlock
from .requests import BootMessage, SpawnRequest
from .seccomp import Filter, SyscallPolicy, template

NAME = "A"

FOLDERS = "/folders"
"""Mount point of the problems' files inside bubblewrap."""

MACHINE = "/machine"
"""Folder inside bubblewrap with what a candidate finds in ``/proc``: the processor's file and a link to ``MEMORY``."""

SELF = "/tmp/.build/self"  # noqa: S108  # of the candidate
"""Where ``/proc/self`` leads: nowhere, except in a build, which can tell a compiler its own path there."""

MEMORY = "/supervisor/meminfo"
"""Where ``/proc/meminfo`` leads: a machine that has the memory of the limit, for programs that plan with it."""

LAST_PID = "/supervisor/last_pid"
"""Mount point of the kernel's file with the last process id of a namespace (``man 7 pid_namespaces``)."""

_OWN = str(Path(LAST_PID).parent)
_USER = 1000  # inside; not 0, so that no program regains capabilities
_TMP = "/tmp"  # noqa: S108  # a file system of its own
_SHARED = "/data"
_FLAGS = kernel.MS_NOSUID | kernel.MS_NODEV


class NamespaceTier:
    """Tier A: fork into namespaces and isolate; a candidate's private ``/tmp`` must not cover ``kept_paths``."""

    bounds_threads = True
    folder = ""

    def __init__(self, kept_paths: Sequence[str]) -> None:
        self._kept_paths = kept_paths
        parents = {parent for path in kept_paths for parent in (path, *map(str, Path(path).parents))}
        self._parents = parents - {"/", _TMP}
        self._abi = landlock.abi()
        self._ids = os.getuid(), os.getgid()
        os.environ["HOME"] = os.environ["TMPDIR"] = _TMP
        self._memory = ""
        self._filters = {
            syscall_policy: Filter(template(syscall_policy, changes=True, open_flags=False))
            for syscall_policy in SyscallPolicy
        }
        self._kept: dict[str, int] = {}
        self._folders = self._rules = self._last_pid = -1
        self.reusable = False

    def precompute(self, order: SpawnRequest) -> None:
        no_exec = 0 if order.syscall_policy.starts_processes else kernel.MS_NOEXEC
        self._tmp_flags = _FLAGS | no_exec
        self._tmp_size = f"mode=0700,size={order.tmp_bytes},nr_inodes={order.tmp_files + len(self._parents)}"
        self._memory = _meminfo(order.memory_bytes)
        look = landlock.READ | (0 if order.syscall_policy is SyscallPolicy.THREADS else landlock.EXECUTE)
        change = landlock.CHANGE | landlock.TRUNCATE
        self._rights = {"/": look, "/dev/null": look | landlock.WRITE_FILE, _TMP: look | change}

    def fork(self) -> int:
        return kernel.fork_apart()

    def setup_supervisor(self) -> None:
        kernel.set_dumpable(True)  # otherwise root owns the files below
        user, group = self._ids
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{_USER} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{_USER} {group} 1")
        kernel.set_dumpable(False)
        # Held, because the file systems below cover them.
        self._kept = {path: _hold(path) for path in self._kept_paths}
        self._folders = _hold(FOLDERS)
        with contextlib.suppress(OSError):  # a kernel without CONFIG_CHECKPOINT_RESTORE, or read-only in a container
            self._last_pid = kernel.out_of_the_way(os.open(LAST_PID, os.O_WRONLY))
            self._restart_pids()
            self.reusable = True
        kernel.mount(MACHINE, "/proc", "", kernel.MS_BIND | kernel.MS_REC)
        kernel.mount("none", FOLDERS, "tmpfs", _FLAGS | kernel.MS_RDONLY, "size=4k")
        kernel.mount("none", _OWN, "tmpfs", _FLAGS, "size=4k")
        Path(MEMORY).write_text(self._memory)
        kernel.mount("none", _OWN, "tmpfs", _FLAGS | kernel.MS_REMOUNT | kernel.MS_RDONLY)

    def setup_candidate(self, order: SpawnRequest) -> None:
        kernel.renew_ipc()
        if self.reusable:
            self._restart_pids()
        kernel.mount("none", _TMP, "tmpfs", self._tmp_flags, self._tmp_size)
        for path, fd in self._kept.items():
            Path(path).mkdir(parents=True)
            os.fchdir(fd)  # a name for what is covered, without /proc
            kernel.mount(".", path, "", kernel.MS_BIND | kernel.MS_REC)
        if order.folder:
            Path(_TMP + _SHARED).mkdir()
            os.fchdir(self._folders)
            kernel.mount(f"{order.folder}{_SHARED}", _TMP + _SHARED, "", kernel.MS_BIND)
        os.chdir(_TMP)
        if self._abi:
            self._rules = landlock.ruleset(self._abi, self._rights)

    def isolate(self, order: SpawnRequest) -> None:
        tasks = order.tasks + 1  # includes the supervisor: same user and namespace
        resource.setrlimit(resource.RLIMIT_NPROC, (tasks, tasks))
        if order.syscall_policy is SyscallPolicy.SCRIPT:
            # Forked processes share pages, and only of a dumpable process the supervisor can read how many.
            kernel.set_dumpable(True)
        kernel.drop_capabilities()
        kernel.forbid_new_privileges()
        if self._abi:
            landlock.enforce(self._rules)
        self._filters[order.syscall_policy].install()

    def cleanup(self) -> None:
        os.chdir("/")
        kernel.unmount(_TMP.encode())
        if self._abi:
            os.close(self._rules)

    def _restart_pids(self) -> None:
        # Otherwise a candidate's process and thread ids tell how many its predecessor used.
        os.pwrite(self._last_pid, b"1", 0)


def open_tier(boot: BootMessage) -> NamespaceTier:
    return NamespaceTier(boot.readable)


def _hold(path: str) -> int:
    return kernel.out_of_the_way(os.open(path, os.O_PATH | os.O_DIRECTORY))


def _meminfo(memory_bytes: int) -> str:
    """Return ``/proc/meminfo`` of a machine with this memory, all of it free, and no swap (``man 5 proc_meminfo``)."""
    used = ("Buffers", "Cached", "SwapCached", "Active", "Inactive", "SwapTotal", "SwapFree", "Shmem", "Slab")
    kilobytes = dict.fromkeys(("MemTotal", "MemFree", "MemAvailable"), memory_bytes >> 10) | dict.fromkeys(used, 0)
    return "".join(f"{name + ':':<15} {value:>8} kB\n" for name, value in kilobytes.items())
