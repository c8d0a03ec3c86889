"""Lock a data directory for one service: a file lock that lasts until all of its servers have ended."""

import fcntl
import json
import os
import time
from pathlib import Path

from speciate.embedded.errors import DataDirectoryBusyError
from speciate.embedded.liveness import birth

_LOCK_FILE = "lock"
_RETRY_S = 0.02


class DataDirectoryLock:
    """Lock on a data directory, held by this process and by the children that inherit `fd`.

    The lock belongs to the open file, so it lasts until the last process that inherited it has ended. A start after a
    kill −9 therefore never runs beside a half-stopped server.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._fd: int | None = None

    @property
    def fd(self) -> int:
        """Descriptor to hand to the children; `ValueError` if the lock is not held."""
        if self._fd is None:
            raise ValueError("the lock is not held")
        return self._fd

    def acquire(self, *, timeout_s: float) -> str | None:
        """Acquire the lock, waiting only for servers whose parent process has ended; return the previous runtime
        directory.

        Raises:
            DataDirectoryBusyError: If a living process holds the directory, or the servers of an ended one still run
                after `timeout_s`.
        """
        fd = os.open(self._data_dir / _LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            self._wait(fd, time.monotonic() + timeout_s)
        except BaseException:
            os.close(fd)
            raise
        previous = _read(fd).get("runtime_dir")
        self._fd = fd
        return previous if isinstance(previous, str) else None

    def describe(self, runtime_dir: Path) -> None:
        """Record the holder's process id, for the error message of another start, and its runtime directory."""
        text = json.dumps({"pid": os.getpid(), "began": birth(os.getpid()), "runtime_dir": str(runtime_dir)})
        os.ftruncate(self.fd, 0)
        os.pwrite(self.fd, text.encode(), 0)

    def wait_until_free(self, *, timeout_s: float) -> bool:
        """Wait until no process holds the directory; return False on timeout."""
        self.release()
        fd = os.open(self._data_dir / _LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
        deadline = time.monotonic() + timeout_s
        try:
            while not (free := _try_lock(fd)) and time.monotonic() < deadline:
                time.sleep(_RETRY_S)
        finally:
            os.close(fd)
        return free

    def release(self) -> None:
        """Close this process's descriptor; descriptors that children inherited keep the lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _wait(self, fd: int, deadline: float) -> None:
        while not _try_lock(fd):
            holder = _living_holder(fd)
            if holder is not None or time.monotonic() > deadline:
                raise DataDirectoryBusyError(self._data_dir, holder)
            time.sleep(_RETRY_S)


def require_no_holder(data_dir: Path) -> None:
    """Raise ``DataDirectoryBusyError`` if a living process holds a data directory."""
    try:
        fd = os.open(data_dir / _LOCK_FILE, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not _try_lock(fd) and (holder := _living_holder(fd)) is not None:
            raise DataDirectoryBusyError(data_dir, holder)
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _living_holder(fd: int) -> int | None:
    noted = _read(fd)
    pid = noted.get("pid")
    if not isinstance(pid, int):
        return None
    began = birth(pid)
    return pid if began is not None and began == noted.get("began") else None


def _read(fd: int) -> dict[str, object]:
    try:
        noted = json.loads(os.pread(fd, 4096, 0))
    except ValueError:
        return {}  # empty, or the holder is writing it
    return noted if isinstance(noted, dict) else {}
