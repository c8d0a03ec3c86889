"""The PostgreSQL of a data directory, shared by commands that run without a service."""

import fcntl
import os
import time
from pathlib import Path

from speciate.embedded import passwords, placement, postgres
from speciate.embedded.account import server_account
from speciate.embedded.errors import EmbeddedServerError
from speciate.embedded.lock import of_this_process, shared_runtime_dir
from speciate.embedded.servers import EmbeddedServers

_READY_LIMIT_S = 60.0
_POLL_S = 0.01


class SharedPostgres:
    """Starts PostgreSQL unless another process has started it; it stops with the last process that uses it.

    Each process holds a shared lock on a file, which the kernel releases when it ends. The guard of the server stops it
    once there is no such lock.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._use: int | None = None
        self._servers: EmbeddedServers | None = None

    def start(self) -> str:
        """Return the address of the database; `DataDirectoryBusyError` if a service uses the data directory."""
        data_dir = placement.make_data_dir(self._data_dir)
        users = data_dir / "users.lock"
        try:
            self._use = _lock(users, fcntl.LOCK_SH)  # waits while a guard stops the server
            of_this_process.add(self._use)
            starting = _lock(data_dir / "start.lock", fcntl.LOCK_EX)
            try:
                runtime = shared_runtime_dir(data_dir)
                if runtime is not None:
                    return _wait_for(data_dir, runtime)
                self._servers = EmbeddedServers(data_dir, users=users)
                return self._servers.start().database_url
            finally:
                os.close(starting)
        except BaseException as error:
            self.stop()
            if isinstance(error, OSError):
                text = f"{data_dir} cannot be used: {error}. Choose a directory on a local disk with --data-dir"
                raise EmbeddedServerError(text) from error
            raise

    def stop(self) -> None:
        """Leave the server, which stops unless others use it; calling it again does nothing."""
        if self._use is not None:
            of_this_process.discard(self._use)
            os.close(self._use)
            self._use = None
        if self._servers is not None:
            self._servers.stop()
            self._servers = None


def _lock(path: Path, kind: int) -> int:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(file, kind)
    return file


def _wait_for(data_dir: Path, runtime: Path) -> str:
    cluster, sockets = placement.cluster_directory(data_dir, server_account()), runtime / postgres.NAME
    deadline = time.monotonic() + _READY_LIMIT_S
    while not postgres.is_ready(cluster, sockets):
        if time.monotonic() > deadline:
            raise EmbeddedServerError(f"the PostgreSQL of another process on {data_dir} does not become ready")
        time.sleep(_POLL_S)
    return postgres.url(sockets, passwords.load_or_create(data_dir, cluster_exists=True).postgres)
