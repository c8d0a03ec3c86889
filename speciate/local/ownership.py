"""The runs that a process executes, noted in a locked file, so that the next process finds those of a killed one."""

import fcntl
import os
import re
import shutil
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from uuid import UUID, uuid4

from speciate.embedded.lock import of_this_process

FOLDER = "local"
"""Folder of these files in the data directory."""

_RUN_LINE: Final = re.compile(r"^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\n", re.MULTILINE)


class OwnRuns:
    """The runs of this process. Thread-safe."""

    def __init__(self, folder: Path, socket_folder: Path) -> None:
        """Write a file in ``folder``; the next process removes ``socket_folder`` if this one is killed."""
        folder.mkdir(mode=0o700, exist_ok=True)
        self._lock = threading.Lock()
        self._ids: set[UUID] = set()
        self.ended = True
        """False if a run could not be paused: its next process then finds it as that of a killed one."""
        draft = folder / f".{uuid4().hex}"
        self._file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        of_this_process.add(self._file)
        fcntl.flock(self._file, fcntl.LOCK_EX)
        os.write(self._file, f"{socket_folder}\n".encode())
        self._path = draft.rename(folder / draft.name[1:])  # locked before others see it

    @property
    def ids(self) -> list[UUID]:
        with self._lock:
            return [*self._ids]

    def add(self, run_id: UUID) -> None:
        with self._lock:
            if run_id not in self._ids:
                self._ids.add(run_id)
                os.write(self._file, f"{run_id}\n".encode())

    def show_life(self) -> None:
        os.utime(self._file)

    def close(self) -> None:
        if self.ended:
            self._path.unlink(missing_ok=True)
        of_this_process.discard(self._file)
        os.close(self._file)


def take_left_behind(folder: Path) -> Iterator[tuple[list[UUID], datetime]]:
    """Yield the runs of each killed process and the time of its last sign of life, once; the caller may stop early."""
    for path in sorted(folder.glob("[0-9a-f]*")):
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue  # another process took it, or another user owns it
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not path.exists():
                continue  # another process took it
            # Only whole lines count: the end of a file may be cut off or damaged, as on a full disk.
            text = path.read_text(errors="replace")
            if socket_folder := re.match(r"(/[^\0\n]+)\n", text):
                shutil.rmtree(socket_folder[1], ignore_errors=True)
            run_ids = [UUID(line) for line in _RUN_LINE.findall(text)]
            yield run_ids, datetime.fromtimestamp(os.fstat(file).st_mtime, UTC)
            path.unlink()
        except BlockingIOError:
            continue  # its process lives
        finally:
            os.close(file)
