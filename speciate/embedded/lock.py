"""Lock a data directory for one service: a file lock that lasts until all of its servers have ended."""

import fcntl
import json
import os
import time
from pathlib import Path

from speciate.embedded.errors import DataDirectoryBusyError, EmbeddedServerError
from speciate.embedded.liveness import birth

of_this_process: set[int] = set()
"""Locked files that forks close: a process pool of a function must not keep them."""

_LOCK_FILE = "lock"
_RETRY_S = 0.02


def _close_in_fork() -> None:
    while of_this_process:  # a fork of the fork has other files by these numbers
        os.close(of_this_process.pop())


os.register_at_fork(after_in_child=_close_in_fork)


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
        """Acquire the lock, and return the previous runtime directory.

        Raise `DataDirectoryBusyError` if a living process holds it, or servers of an ended one still after `timeout_s`.
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

    def describe(self, runtime_dir: Path, *, shared: bool = False) -> None:
        """Record the holder's process id, for the error message of another start, and its runtime directory.

        ``shared`` tells other processes that they may use its PostgreSQL.
        """
        holder = {"pid": os.getpid(), "began": birth(os.getpid())}
        text = json.dumps({**holder, "runtime_dir": str(runtime_dir), "shared": shared})
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
            if (error := _busy(fd, self._data_dir)).lasts or time.monotonic() > deadline:
                raise error
            time.sleep(_RETRY_S)


def shared_runtime_dir(data_dir: Path) -> Path | None:
    """Return the runtime directory of a shared PostgreSQL; None if no server runs.

    If a service holds the directory, raise `DataDirectoryBusyError`.
    """
    lock = DataDirectoryLock(data_dir)
    try:
        lock.acquire(timeout_s=0.0)
    except DataDirectoryBusyError as error:
        if error.runtime_dir is None:
            raise
        return error.runtime_dir
    lock.release()
    return None


def _try_lock(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise EmbeddedServerError(f"files cannot be locked: {error}. Use a local disk: --data-dir") from error
    return True


def _busy(fd: int, data_dir: Path) -> DataDirectoryBusyError:
    noted = _read(fd)
    pid = noted.get("pid")
    began = birth(pid) if isinstance(pid, int) else None
    living = pid if isinstance(pid, int) and began is not None and began == noted.get("began") else None
    return DataDirectoryBusyError(data_dir, living, Path(str(noted["runtime_dir"])) if noted.get("shared") else None)


def _read(fd: int) -> dict[str, object]:
    try:
        noted = json.loads(os.pread(fd, 4096, 0))
    except ValueError:
        return {}  # empty, or the holder is writing it
    return noted if isinstance(noted, dict) else {}
