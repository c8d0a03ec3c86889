"""Compile cache: built programs of this machine, one file each, named by the digest of everything they depend on.

Candidates cannot reach the folder, and a build's files are stored under the digest of its own source, so a program can
only determine its own entry. An entry carries a digest of its content: a damaged one is built again.
"""

import contextlib
import hashlib
import json
import logging
import os
import stat
import tempfile
from pathlib import Path
from typing import Final

from evaluators.local_folders import open_private_folder

BuiltFiles = dict[str, tuple[str, bool]]
"""Base64 of each file by path, and True for a program."""

_SUFFIX: Final = ".built"
_DIGEST_BYTES: Final = 32
_log = logging.getLogger(__name__)


class BuildCache:
    """Built programs; safe for concurrent threads and processes. Without access to its folder it stays empty."""

    def __init__(self, root: Path, *, max_bytes: int = 1 << 30) -> None:
        self._root, self._max_bytes = root, max_bytes

    def find(self, key: str) -> BuiltFiles | None:
        try:
            descriptor = os.open(self._root / f"{key}{_SUFFIX}", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            return None
        with open(descriptor, "rb") as file:  # noqa: PTH123
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_size > self._max_bytes:
                return None
            digest, body = file.read(_DIGEST_BYTES), file.read()
        if digest != _digest(key, body):
            _log.warning("the built program %s was changed: it is built again", key)
            return None
        with contextlib.suppress(OSError):
            os.utime(self._root / f"{key}{_SUFFIX}", follow_symlinks=False)
        return {name: (content, bool(program)) for name, (content, program) in json.loads(body).items()}

    def keep(self, key: str, files: BuiltFiles) -> None:
        body = json.dumps(files).encode()
        if len(body) > self._max_bytes:
            return
        try:
            root = open_private_folder(self._root)
            self._prune(self._max_bytes - len(body))
            with tempfile.NamedTemporaryFile(dir=root, delete=False) as file:
                file.write(_digest(key, body) + body)
            Path(file.name).replace(root / f"{key}{_SUFFIX}")
        except OSError as error:
            _log.warning("the compile cache is not used: %s", error)

    def _prune(self, max_bytes: int) -> None:
        """Remove the least recently used programs beyond a size, and what killed processes left."""
        entries = []
        for path in self._root.iterdir():
            with contextlib.suppress(FileNotFoundError):
                status = path.lstat()
                entries.append((status.st_mtime, status.st_size, path))
        total = 0
        for _, size, path in sorted(entries, reverse=True):
            total += size
            if total > max_bytes:
                path.unlink(missing_ok=True)


def _digest(key: str, body: bytes) -> bytes:
    return hashlib.sha256(key.encode() + body).digest()
