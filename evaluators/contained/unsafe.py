"""No containment, inside: limits, a folder of its own and a sweep afterwards. Accidents stay in, attacks do not."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path

from . import kernel
from .requests import SpawnRequest

NAME = "unsafe"

_PREFIX = "speciate-eval-"  # then the zygote's number and the supervisor's


class UnsafeTier:
    """Unsafe mode: fork without isolation."""

    bounds_threads = True  # nothing is bounded here

    def __init__(self) -> None:
        self.folder = ""

    def fork(self) -> int:
        """Fork a supervisor."""
        return os.fork()

    def settle(self, order: SpawnRequest) -> None:
        """Give the candidate a folder, and collect what it leaves running."""
        kernel.adopt_orphans()
        made = tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getppid()}-{os.getpid()}-")
        self.folder = os.environ["HOME"] = os.environ["TMPDIR"] = made
        if order.folder:
            Path(self.folder, "data").symlink_to(Path(order.folder, "data"))
        os.chdir(self.folder)

    def enclose(self, order: SpawnRequest) -> None:
        """Enclose nothing."""

    def tidy(self) -> None:
        """Remove the folder with whatever is in it."""
        os.chdir("/")
        remove(self.folder)


def orphaned_folders(zygote: int) -> list[str]:
    """Return the folders of a zygote's supervisors that are no more; never what another user has given such a name."""
    begin = f"{_PREFIX}{zygote}-"
    found = [path for path in Path(tempfile.gettempdir()).glob(f"{begin}*") if _is_own_folder(path)]
    return [str(path) for path in found if _has_ended(path.name.removeprefix(begin).partition("-")[0])]


def _is_own_folder(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _has_ended(pid: str) -> bool:
    try:
        # One that is ending loses its memory, which holds this, before its end of any socket.
        return not Path("/proc", pid, "cmdline").read_bytes()
    except OSError:
        return True


def remove(folder: str) -> None:
    """Remove a folder that a candidate has filled."""
    with contextlib.suppress(RecursionError):  # which it does not count among the errors to ignore
        shutil.rmtree(folder, ignore_errors=True)
    if Path(folder).exists():
        # Thousands of levels deep, or without permissions: Python's walk gives up where these do not.
        subprocess.run(["/bin/chmod", "-R", "u+rwX", "--", folder], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["/bin/rm", "-rf", "--", folder], check=False, stderr=subprocess.DEVNULL)
