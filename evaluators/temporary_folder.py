"""Temporary folders named after their process, so that the next one removes those of killed processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


def make_temporary_folder(kind: str) -> Path:
    """Make a folder of this process; remove those of the same kind whose process has ended."""
    prefix = f"speciate-{kind}-"
    for path in Path(tempfile.gettempdir()).glob(f"{prefix}*"):
        pid = path.name.removeprefix(prefix).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                shutil.rmtree(path)
    return Path(tempfile.mkdtemp(prefix=f"{prefix}{os.getpid()}-"))


@contextlib.contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Make a folder as ``make_temporary_folder`` does, and remove it at the end of the block."""
    folder = make_temporary_folder(kind)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
