"""Unsafe mode, inside: limits, a folder per candidate and a sweep; protects against accidents, not attacks."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from . import kernel
from .requests import BootMessage, SpawnRequest

NAME = "unsafe"

_PREFIX = "speciate-eval-"  # followed by the process ids of the zygote and the supervisor


class UnsafeTier:
    """Unsafe mode: fork without isolation."""

    bounds_threads = True  # this tier does not limit threads
    reusable = True

    def __init__(self) -> None:
        self.folder = ""

    def precompute(self, order: SpawnRequest) -> None: ...

    def fork(self) -> int:
        return os.fork()

    def setup_supervisor(self) -> None:
        kernel.adopt_orphans()

    def setup_candidate(self, order: SpawnRequest) -> None:
        folder = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getppid()}-{os.getpid()}-")
        self.folder = os.environ["HOME"] = os.environ["TMPDIR"] = folder
        if order.folder:
            Path(self.folder, "data").symlink_to(Path(order.folder, "data"))
        os.chdir(self.folder)

    def isolate(self, order: SpawnRequest) -> None: ...

    def cleanup(self) -> None:
        os.chdir("/")
        remove(self.folder)


def open_tier(_: BootMessage) -> UnsafeTier:
    return UnsafeTier()


def orphaned_folders(zygote: int) -> list[str]:
    """Return the folders of a zygote's ended supervisors, excluding folders of other users with such a name."""
    begin = f"{_PREFIX}{zygote}-"
    folders = [path for path in Path(tempfile.gettempdir()).glob(f"{begin}*") if _is_own_folder(path)]
    return [str(path) for path in folders if _has_ended(path.name.removeprefix(begin).partition("-")[0])]


def _is_own_folder(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def _has_ended(pid: str) -> bool:
    try:
        # An ending process loses its memory, which this checks, before it closes its sockets.
        return not Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return True


def remove(folder: str) -> None:
    with contextlib.suppress(RecursionError):  # ``ignore_errors`` does not cover it
        shutil.rmtree(folder, ignore_errors=True)
    if Path(folder).exists():
        # Thousands of levels deep, or without permissions: Python's walk fails where these commands succeed.
        subprocess.run(["/bin/chmod", "-R", "u+rwX", "--", folder], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["/bin/rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL)
