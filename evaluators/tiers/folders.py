"""Folders of files that candidates read; only the worker writes them.

In tier A a zygote mounts the common root read-only, and each candidate sees one folder of it. In tier B Landlock lets a
candidate read one folder. The worker therefore writes a folder once for all candidates of a problem.
"""

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from evaluators.local_folders import make_temporary_folder, remove_left_folders
from speciate.domain.data_files import bytes_of
from speciate.domain.values import digest_of

DATA = "data"
_KIND = "files"


class ProblemFolders:
    """Folders of one worker, created on first use and removed by ``close``."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._lock = threading.Lock()

    @property
    def root(self) -> Path:
        with self._lock:
            if self._root is None:
                self._root = make_temporary_folder(_KIND)
                self._root.chmod(0o711)
            return self._root

    def shared(self, files: dict[str, str]) -> Path:
        """Return a folder with these texts in its sub-folder ``data``; the same folder for the same files."""
        folder = self.root / digest_of(files)[:32]
        with self._lock:
            if not folder.exists():
                _fill(folder, files)
        return folder

    @contextmanager
    def own(self, files: dict[str, str]) -> Iterator[Path]:
        folder = self.root / uuid4().hex
        _fill(folder, files)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        with self._lock:
            self._remove()

    def leave(self) -> None:
        """Remove everything before this process exits. Threads that still evaluate wait for its exit."""
        self._lock.acquire()
        self._remove()

    def _remove(self) -> None:
        if self._root is not None:
            shutil.rmtree(self._root, ignore_errors=True)
            self._root = None
        remove_left_folders(_KIND)  # of processes of the same pool that were killed


def _fill(folder: Path, files: dict[str, str]) -> None:
    # Under another name until it is complete; readable by the user of contained processes.
    half = folder.with_name(f".{folder.name}")
    data = half / DATA
    data.mkdir(parents=True)
    for name, content in files.items():
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes_of(content))
        path.chmod(0o644)
    for below in data.rglob("*"):
        if below.is_dir():
            below.chmod(0o755)
    data.chmod(0o755)
    half.chmod(0o755)
    half.rename(folder)
