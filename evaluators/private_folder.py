"""Folders of this user whose contents other users cannot replace."""

from __future__ import annotations

import os
from pathlib import Path

_WRITABLE_BY_OTHERS = 0o022


def open_private_folder(folder: Path, mode: int = 0o700) -> Path:
    """Create a folder if it does not exist, and return it.

    Raises:
        PermissionError: It belongs to another user, or others may write to it.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=mode)
    status = folder.stat()
    if status.st_uid != os.geteuid() or status.st_mode & _WRITABLE_BY_OTHERS:
        raise PermissionError(f"{folder} must belong to the worker's user and be writable only by it")
    return folder
