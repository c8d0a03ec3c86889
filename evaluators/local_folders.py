"""Private folders, and temporary ones named after their process, so that the next one removes those of killed ones."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_WRITABLE_BY_OTHERS = 0o022


def make_temporary_folder(kind: str) -> Path:
    """Make a folder of this process; remove those of the same kind whose process has ended."""
    remove_left_folders(kind)
    return Path(tempfile.mkdtemp(prefix=f"speciate-{kind}-{os.getpid()}-"))


def remove_left_folders(kind: str) -> None:
    """Remove the folders of this kind whose process was killed."""
    prefix = f"speciate-{kind}-"
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        pid = path.name.removeprefix(prefix).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            with contextlib.suppress(OSError, RecursionError):
                shutil.rmtree(path)


@contextlib.contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    folder = make_temporary_folder(kind)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def open_private_folder(folder: Path, mode: int = 0o700) -> Path:
    """Create a folder if it does not exist; ``PermissionError`` if other users own it or may write to it."""
    folder.mkdir(parents=True, exist_ok=True, mode=mode)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & _WRITABLE_BY_OTHERS:
        raise PermissionError(f"{folder} must belong to the worker's user and be writable only by it")
    return folder
