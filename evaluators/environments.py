"""Environments: the packages that problems require, each set installed once in a folder named by its digest.

No code of a package runs during a build, whose memory, time and space are bounded. The folder is sealed with a digest
of every file, which each process verifies before it uses the folder for the first time.
"""

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from evaluators.local_folders import open_private_folder
from evaluators.package_installation import install
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.domain.values import digest_of

_FORMAT: Final = 2
_SITE: Final = "site"
_SEAL: Final = "seal.json"
_LOCK: Final = ".lock"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Environment:
    """Folder of installed packages, and the SHA-256 of their files, which is recorded with every evaluation."""

    site: Path
    digest: str


class EnvironmentStore:
    """Environments of one machine; safe for concurrent threads and processes. The least recently used ones go first."""

    def __init__(self, root: Path, *, max_bytes: int = 20 << 30, max_days: float = 30.0) -> None:
        self._root = root
        self._max_bytes, self._max_days = max_bytes, max_days
        self._verified: dict[Path, Environment] = {}

    @contextlib.contextmanager
    def use(
        self, requirements: Sequence[str], report: Callable[[str], None] = lambda _: None
    ) -> Iterator[Environment | None]:
        """Provide an environment, or None without requirements, unpruned; ``report`` receives pip's lines."""
        if not requirements:
            yield None
            return
        name = _name(requirements)
        try:
            open_private_folder(self._root, 0o711)
            lock = os.open(self._root / f"{name}{_LOCK}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _unavailable(requirements, str(error)) from error
        try:
            yield self._find_or_build(lock, name, requirements, report)
        finally:
            os.close(lock)

    def prune(self) -> int:
        """Remove environments that are old or exceed the size limit and are not in use; return how many."""
        environments = []
        for lock in self._root.glob(f"*{_LOCK}"):
            files = self._root.glob(f"{lock.name.removesuffix(_LOCK)}-*/**/*")
            with contextlib.suppress(FileNotFoundError):
                environments.append((lock.stat().st_mtime, lock, sum(file.lstat().st_size for file in files)))
        total, removed, oldest = 0, 0, time.time() - self._max_days * 86_400
        for used, lock, size in sorted(environments, reverse=True):
            if (used < oldest or total + size > self._max_bytes) and self._remove_unused(lock):
                removed += 1
            else:
                total += size
        return removed

    def _find_or_build(
        self, lock: int, name: str, requirements: Sequence[str], report: Callable[[str], None]
    ) -> Environment:
        os.utime(lock)
        fcntl.flock(lock, fcntl.LOCK_SH)
        while (environment := self._find(name)) is None:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if self._find(name) is None:
                self._clear(name)
                try:
                    self._build(name, requirements, report)
                except (OSError, ValueError) as error:
                    raise _unavailable(requirements, str(error)) from error
            fcntl.flock(lock, fcntl.LOCK_SH)  # not atomic: another process may prune in between
            self.prune()
        return environment

    def _find(self, name: str) -> Environment | None:
        for folder in self._root.glob(f"{name}-*"):
            if folder in self._verified:
                return self._verified[folder]
            try:
                seal = json.loads((folder / _SEAL).read_text("utf-8"))
                files = _digests(folder / _SITE)
            except FileNotFoundError:
                continue  # another process was killed during its build
            except (OSError, ValueError) as error:
                _log.warning("the environment %s is damaged and is built again: %s", folder, error)
                continue
            if seal != _seal(files):
                _log.warning("the files of the environment %s were changed: it is built again", folder)
                continue
            self._verified[folder] = Environment(folder / _SITE, str(seal["digest"]))
            return self._verified[folder]
        return None

    def _build(self, name: str, requirements: Sequence[str], report: Callable[[str], None]) -> None:
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._root))
        try:
            site = folder / _SITE
            site.mkdir()
            listed = folder / "requirements.txt"
            listed.write_text("".join(f"{line}\n" for line in requirements), "utf-8")
            install(folder, site, listed, self._max_bytes, report)
            seal = _seal(_digests(site))
            for path in (folder, *folder.rglob("*")):
                path.chmod(0o755 if path.stat().st_mode & stat.S_IXUSR else 0o644)  # pip marks programs of wheels
            (folder / _SEAL).write_text(json.dumps(seal), "utf-8")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _clear(self, name: str) -> int:
        folders = [*self._root.glob(f"{name}-*")]
        for folder in folders:
            self._verified.pop(folder, None)
            shutil.rmtree(folder)
        return len(folders)

    def _remove_unused(self, path: Path) -> bool:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The lock file stays: a process may wait for it.
            return self._clear(path.name.removesuffix(_LOCK)) > 0
        except BlockingIOError:
            return False
        finally:
            os.close(lock)


def _name(requirements: Sequence[str]) -> str:
    python = [_FORMAT, sys.implementation.cache_tag, sys.version_info[:3], sysconfig.get_platform(), sys.base_prefix]
    return digest_of([sorted(requirements), python])[:32]


def _digests(site: Path) -> dict[str, str]:
    """Return the SHA-256 of every file by path; ``ValueError`` if something is neither a file nor a folder."""
    digests = {}
    for path in sorted(site.rglob("*")):
        name = path.relative_to(site).as_posix()
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ValueError(f"{name} is a link or a special file")
        if path.is_file():
            with path.open("rb") as file:
                digests[name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _seal(files: dict[str, str]) -> dict[str, str]:
    """Return the digests of all files, and of those that are equal on every machine."""
    same = {name: digest for name, digest in files.items() if not name.startswith("bin/") and _is_shipped(name)}
    return {"seal": digest_of(files), "digest": digest_of(same)}


def _is_shipped(name: str) -> bool:
    """Return True for a file of a package; pip writes the others, with paths and times of this machine."""
    path = Path(name)
    written = {"RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
    return path.suffix != ".pyc" and not (path.parent.suffix == ".dist-info" and path.name in written)


def _unavailable(requirements: Sequence[str], reason: str) -> EvaluatorUnavailableError:
    return EvaluatorUnavailableError(
        f"The environment for {', '.join(requirements)} cannot be built: {reason.rstrip('.')}.",
        remedy="Correct `requirements` in problem.toml (only wheels are installed), or give the worker access to the"
        " package index (PIP_INDEX_URL, PIP_FIND_LINKS); then try again, or resume the run.",
    )
