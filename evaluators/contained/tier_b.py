"""Tier B, inside the sandbox: isolate with Landlock and seccomp where namespaces are unavailable.

It works in a container without capabilities. A candidate can read system libraries, Python and its problem's files. It
cannot write files, can start only threads, and can send signals only to itself.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Sequence

from . import kernel, landlock
from .bounds import lowered
from .requests import BootMessage, SpawnRequest
from .seccomp import Filter, SyscallPolicy, template

NAME = "B"

PROCESSOR = "/proc/cpuinfo"
"""Description of the processor, without which XLA refuses to compute."""

_TASKS = 2048  # threads and processes of all evaluations of one worker, which share its user id


class LandlockTier:
    """Tier B: isolate with Landlock and seccomp."""

    bounds_threads = False
    reusable = True
    folder = ""

    def __init__(self, readable: Sequence[str], hidden: Sequence[str], folders: str, *, own_user: bool) -> None:
        self._abi = landlock.abi()
        if not self._abi:
            raise OSError("the kernel has no Landlock (Linux 5.13 or newer, with CONFIG_SECURITY_LANDLOCK)")
        import tempfile  # late: it brings libraries that would enlarge every fork of tier A

        # Packages look for this folder when they are imported, and fail where Python finds none that can be written to.
        tempfile.tempdir = os.environ.get("TMPDIR")
        sees_writes = self._abi >= landlock.WRITES_SINCE
        self._filter = Filter(template(SyscallPolicy.THREADS, changes=False, open_flags=not sees_writes))
        self._own_user = own_user
        self._readable = dict.fromkeys(readable, landlock.READ)
        self._readable[PROCESSOR] = landlock.READ_FILE
        self._readable["/dev/null"] = landlock.READ | landlock.WRITE_FILE | landlock.TRUNCATE
        # The zygote itself is restricted, too, because it imports the modules to preload.
        kernel.drop_capabilities()
        own = dict.fromkeys(["/proc", *([folders] if folders else [])], landlock.READ)
        landlock.restrict(self._abi, self._readable | own)
        if hidden:
            # Possibly hundreds of paths: restrict the zygote once for all its forks.
            away = {os.path.realpath(path) for path in hidden}
            paths = [each for path in readable for each in landlock.beside(os.path.realpath(path), away)]
            landlock.restrict(self._abi, dict.fromkeys([*paths, *own], landlock.READ_FILE), only=landlock.READ_FILE)
        self._folder = ""
        self._rules = self._rules_with("")

    def precompute(self, order: SpawnRequest) -> None:
        if order.folder != self._folder:
            os.close(self._rules)
            self._folder, self._rules = order.folder, self._rules_with(order.folder)

    def fork(self) -> int:
        return os.fork()

    def setup_supervisor(self) -> None:
        kernel.set_dumpable(False)

    def setup_candidate(self, order: SpawnRequest) -> None:
        if order.syscall_policy in (SyscallPolicy.PROGRAM, SyscallPolicy.PROCESSES):
            raise OSError("candidates that start programs need namespaces: tier A")
        os.chdir(order.folder or "/")

    def isolate(self, _: SpawnRequest) -> None:
        if self._own_user:
            # A backstop between two checks of the supervisor; without an own user, other processes would count, too.
            most = lowered(resource.RLIMIT_NPROC, _TASKS)
            resource.setrlimit(resource.RLIMIT_NPROC, (most, most))
        kernel.drop_capabilities()
        kernel.forbid_new_privileges()
        landlock.enforce(self._rules)
        self._filter.install()

    def cleanup(self) -> None: ...

    def _rules_with(self, folder: str) -> int:
        paths = self._readable | ({folder: landlock.READ} if folder else {})
        return kernel.out_of_the_way(landlock.ruleset(self._abi, paths))


def open_tier(boot: BootMessage) -> LandlockTier:
    return LandlockTier(boot.readable, boot.hidden, boot.folders, own_user=boot.user is not None)
