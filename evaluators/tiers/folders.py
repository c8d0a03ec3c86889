"""Folders of files that candidates read; only the worker writes them.

In tier A a zygote mounts the common root read-only, and each candidate sees one folder of it. In tier B Landlock lets a
candidate read one folder. The worker therefore writes a folder once for all candidates of a problem, or of a batch if
its files are large.
"""

import fcntl
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from evaluators.local_folders import make_temporary_folder, remove_left_folders
from speciate.domain.data_files import bytes_of
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.values import digest_of

DATA = "data"
_KIND = "files"
_MOST_KEPT = 1 << 20
"""Characters of the files of a folder that stays until the process ends; a larger one goes with its batch."""


class ProblemFolders:
    """Folders of one worker, created on first use and removed by ``close``."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._held = -1
        self._lock = threading.Lock()

    @property
    def root(self) -> Path:
        with self._lock:
            if self._root is None:
                root = make_temporary_folder(_KIND)
                root.chmod(0o711)
                self._held = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                with suppress(OSError):  # not every file system has locks
                    fcntl.flock(self._held, fcntl.LOCK_SH)  # systemd-tmpfiles removes old files unless it is locked
                self._root = root
            return self._root

    @contextmanager
    def opened(self, files: dict[str, str], *, once: bool) -> Iterator[Path | None]:
        """Provide a folder with these texts in its sub-folder ``data``; None without any.

        The folder is the same for the same files, unless they serve ``once`` or are large. Raises
        ``EvaluatorUnavailableError``.
        """
        if not files:
            yield None
            return
        once = once or sum(map(len, files.values())) > _MOST_KEPT
        folder = self.root / (uuid4().hex if once else digest_of(files)[:32])
        with self._lock:
            if not folder.exists():
                _fill(folder, files)
        try:
            yield folder
        finally:
            if once:
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
            os.close(self._held)
            self._root = None
        remove_left_folders(_KIND)  # of processes of the same pool that were killed


def _fill(folder: Path, files: dict[str, str]) -> None:
    # Under another name until it is complete; readable by the user of contained processes.
    half = folder.with_name(f".{folder.name}")
    try:
        for name, content in files.items():
            path = half / DATA / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes_of(content))
        for path in (half, *half.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        half.rename(folder)
    except OSError as error:
        shutil.rmtree(half, ignore_errors=True)
        raise EvaluatorUnavailableError(
            f"The files of a problem cannot be written below {folder.parent}: {error.strerror}.",
            remedy="Free space on its disk, or let TMPDIR name a folder of another one; then resume the run.",
        ) from error
