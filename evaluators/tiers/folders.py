"""Folders of files that candidates read, written by the broker and never by what it contains.

In tier A a zygote shows the common root read-only and each candidate one folder of it; in tier B a candidate may read
one folder; so a folder is written once for all candidates of a problem.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import threading
from pathlib import Path

from speciate.domain.values import digest_of

DATA = "data"
_PREFIX = "speciate-files-"


class ProblemFolders:
    """The folders of one broker; made when first asked for, removed by ``close``."""

    def __init__(self) -> None:
        self._root: Path | None = None
        self._lock = threading.Lock()

    @property
    def root(self) -> Path:
        """The folder of all folders."""
        with self._lock:
            if self._root is None:
                _remove_orphans()
                self._root = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
                self._root.chmod(0o711)
            return self._root

    def shared(self, files: dict[str, str]) -> Path:
        """Return a folder whose sub-folder ``data`` holds these texts by name; the same one for the same files."""
        folder = self.root / digest_of(files)[:32]
        with self._lock:
            if not folder.exists():
                _fill(folder, files)
        return folder

    def own(self, files: dict[str, str]) -> Path:
        """Return a new folder with these files, which the caller gives back to ``drop``."""
        folder = Path(tempfile.mkdtemp(dir=self.root))
        folder.rmdir()
        _fill(folder, files)
        return folder

    def drop(self, folder: Path) -> None:
        """Remove a folder."""
        shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove everything."""
        with self._lock:
            if self._root is not None:
                shutil.rmtree(self._root, ignore_errors=True)
                self._root = None


def _fill(folder: Path, files: dict[str, str]) -> None:
    # Under another name until it is whole; readable by the user that candidates become.
    half = folder.with_name(f".{folder.name}")
    data = half / DATA
    data.mkdir(parents=True)
    for name, text in files.items():
        # Surrogates are kept: the reader of the file refuses them, since a program may contain anything.
        (data / name).write_bytes(text.encode("utf-8", "surrogatepass"))
        (data / name).chmod(0o644)
    data.chmod(0o755)
    half.chmod(0o755)
    half.rename(folder)


def _remove_orphans() -> None:
    """Remove what brokers left behind that were killed."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        pid = path.name.removeprefix(_PREFIX).partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            with contextlib.suppress(OSError):
                shutil.rmtree(path)
