"""Start, stop and restart the embedded PostgreSQL and Valkey."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from speciate.embedded import passwords, placement, postgres, valkey
from speciate.embedded.account import server_account
from speciate.embedded.binaries import find_postgres, find_valkey
from speciate.embedded.errors import START_BYTES, DataDirectoryBusyError, DiskFullError, EmbeddedServerError
from speciate.embedded.lock import DataDirectoryLock
from speciate.embedded.processes import ChildStatus, GuardedProcesses

_PREDECESSOR_LIMIT_S = 15.0
_READY_LIMIT_S = 60.0  # crash recovery of a large cluster is slow
_POLL_S = 0.005
_LOG_LIMIT_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Endpoints:
    """URLs of PostgreSQL for SQLAlchemy with psycopg 3 (`postgresql+psycopg://user:password@/database?host=/directory`)
    and of Valkey for redis-py (`unix://:password@/directory/valkey.sock`), empty if only PostgreSQL runs.
    """

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)


class EmbeddedServers(AbstractContextManager["EmbeddedServers"]):
    """PostgreSQL and Valkey on unix sockets for the lifetime of this process.

    PostgreSQL's data stay in `data_dir` between starts; Valkey's do not, by design. When this process ends, even by
    kill −9, both servers stop and their sockets disappear.
    """

    def __init__(self, data_dir: Path, *, users: Path | None = None) -> None:
        """Prepare the servers; `start` is the first to change any file.

        With `users`, start PostgreSQL only, for all processes with a shared lock on this file; it ends with the last.
        """
        self._data_dir = data_dir
        self._users = users
        self._runtime_dir: Path | None = None
        self._owner = os.getpid()
        self._lock: DataDirectoryLock | None = None
        self._processes: GuardedProcesses | None = None
        self._ready: dict[str, Callable[[int], bool]] = {}
        self._log_files: dict[str, Path] = {}

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def guard_pid(self) -> int | None:
        return self._processes.guard_pid if self._processes else None

    def start(self) -> Endpoints:
        """Start both servers, wait until both answer, and return their addresses; after an error no process is left
        running.
        """
        if self._processes is not None:
            raise EmbeddedServerError(f"the servers on {self._data_dir} are already running")
        try:
            return self._start()
        except BaseException as error:
            self.stop()
            if isinstance(error, EmbeddedServerError | OSError) and not isinstance(error, DataDirectoryBusyError):
                free = shutil.disk_usage(self._data_dir).free if self._data_dir.exists() else START_BYTES
                if free < START_BYTES:
                    raise DiskFullError(self._data_dir, free) from error
            raise

    def stop(self) -> None:
        """Stop both servers in order and remove their sockets; calling it again does nothing."""
        if os.getpid() != self._owner:
            return  # in a fork of the process that started them
        in_order = self._processes is None or self._processes.stop()
        kept = self._processes is not None and self._processes.kept
        self._processes = None
        if self._lock is not None:
            self._lock.release()
            if not in_order:
                self._lock.wait_until_free(timeout_s=_PREDECESSOR_LIMIT_S)
            self._lock = None
        if self._runtime_dir is not None:
            if not kept:
                shutil.rmtree(self._runtime_dir, ignore_errors=True)  # done by the guard, unless it was killed
            self._runtime_dir = None

    def poll(self) -> Mapping[str, ChildStatus]:
        """Return the current status of the servers `postgres` and `valkey`; raises `EmbeddedServerError`."""
        return self._running().poll()

    def restart(self, name: str) -> None:
        """Restart one server on the same socket and wait until it answers, or raise `EmbeddedServerError`."""
        self._wait_until_ready({name: self._running().restart(name)})

    def _running(self) -> GuardedProcesses:
        if self._processes is None:
            raise EmbeddedServerError(f"the servers on {self._data_dir} are not running")
        return self._processes

    def _start(self) -> Endpoints:
        account = server_account()
        data_dir = placement.make_data_dir(self._data_dir)
        self._lock = DataDirectoryLock(data_dir)
        if left_behind := self._lock.acquire(timeout_s=_PREDECESSOR_LIMIT_S):
            # Sockets of a start whose guard was also killed; no other program uses a directory of that name.
            folder = Path(left_behind)
            if folder.name.startswith("speciate-") and folder.is_dir() and folder.stat().st_uid == os.geteuid():
                shutil.rmtree(folder, ignore_errors=True)
        installation, valkey_program = find_postgres(), None if self._users else find_valkey()
        runtime = self._runtime_dir = placement.make_runtime_dir()
        self._lock.describe(runtime, shared=self._users is not None)
        self._processes = GuardedProcesses(inherit=[self._lock.fd], remove=[runtime], users=self._users)
        self._processes.launch()  # starts while the cluster is created, and cleans up after an interruption
        database = postgres.Postgres(
            binaries=placement.readable_installation(installation, account),
            cluster=placement.cluster_directory(data_dir, account),
            socket_dir=placement.make_private_dir(runtime / postgres.NAME, account),
            log_file=self._log_file(data_dir, postgres.NAME),
            account=account,
            lock_fd=self._lock.fd,
        )
        secrets = passwords.load_or_create(data_dir, cluster_exists=database.cluster.exists())
        database.ensure_cluster(secrets.postgres)
        self._ready = {postgres.NAME: database.ready}
        pids = {postgres.NAME: self._processes.start(database.command())}
        redis_url = ""
        if valkey_program is not None:
            cache = valkey.Valkey(
                program=valkey_program,
                directory=placement.make_private_dir(runtime / valkey.NAME, None),
                log_file=self._log_file(data_dir, valkey.NAME),
                password=secrets.valkey,
            )
            self._ready[valkey.NAME], redis_url = lambda _pid: cache.ready(), cache.url()
            pids[valkey.NAME] = self._processes.start(cache.command())
        # From here on only the guard and the servers may hold the lock, not a fork of this process.
        self._lock.release()
        self._wait_until_ready(pids)
        return Endpoints(database_url=postgres.url(database.socket_dir, secrets.postgres), redis_url=redis_url)

    def _wait_until_ready(self, pids: Mapping[str, int]) -> None:
        waiting = dict(pids)
        deadline = time.monotonic() + _READY_LIMIT_S
        while waiting:
            status = self._running().poll()
            for name, pid in list(waiting.items()):
                if not status[name].running:
                    raise EmbeddedServerError(self._explain(name, f"ended with status {status[name].returncode}"))
                if self._ready[name](pid):
                    del waiting[name]
            if time.monotonic() > deadline:
                what = f"not ready after {_READY_LIMIT_S:.0f} s: {' and '.join(waiting)}"
                raise EmbeddedServerError(self._explain(next(iter(waiting)), what))
            time.sleep(_POLL_S if waiting else 0)

    def _explain(self, name: str, what: str) -> str:
        log = self._log_files[name]
        last = log.read_text(errors="replace").strip().splitlines()[-3:] if log.exists() else []
        return f"{name} did not start: {what}. The end of {log}: {' | '.join(last)}"

    def _log_file(self, data_dir: Path, name: str) -> Path:
        path = data_dir / "logs" / f"{name}.log"
        path.parent.mkdir(mode=0o700, exist_ok=True)
        if path.exists() and path.stat().st_size > _LOG_LIMIT_BYTES:
            path.replace(path.with_suffix(".log.1"))
        self._log_files[name] = path
        return path
