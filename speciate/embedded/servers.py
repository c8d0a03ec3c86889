"""The two servers together: start, stop, and the small things that faults need."""

import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from speciate.embedded import passwords, placement, postgres, valkey
from speciate.embedded.account import server_account
from speciate.embedded.binaries import find_postgres, find_valkey
from speciate.embedded.endpoints import Endpoints
from speciate.embedded.errors import EmbeddedServerError, ServerStartError
from speciate.embedded.lock import DataDirectoryLock
from speciate.embedded.processes import ChildStatus, GuardedProcesses

_PREDECESSOR_LIMIT_S = 15.0
_READY_LIMIT_S = 60.0  # crash recovery of a big cluster takes its time
_POLL_S = 0.005
_LOG_LIMIT_BYTES = 16 * 2**20


class EmbeddedServers:
    """PostgreSQL and Valkey on unix sockets, for as long as this process lives.

    The data stay in `data_dir` between starts; Valkey's do not, by design. When this process ends in any way, kill −9
    included, both servers stop and their sockets disappear.
    """

    def __init__(self, data_dir: Path, *, runtime_dir: Path | None = None) -> None:
        """Prepare; nothing is touched before `start`.

        Args:
            data_dir: Holds the cluster, the passwords and the logs; made if missing.
            runtime_dir: Existing directory in which to make the private directory of the sockets; None chooses one.
        """
        self._data_dir = data_dir
        self._runtime_parent = runtime_dir
        self._runtime_dir: Path | None = None
        self._owner = os.getpid()
        self._lock: DataDirectoryLock | None = None
        self._processes: GuardedProcesses | None = None
        self._ready: dict[str, Callable[[int], bool]] = {}
        self._log_files: dict[str, Path] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def guard_pid(self) -> int | None:
        """Process id of the guard; None while nothing runs."""
        return self._processes.guard_pid if self._processes else None

    def start(self) -> Endpoints:
        """Start both servers and return their addresses once both answer.

        Raises:
            DataDirectoryBusyError: If another process uses the data directory.
            BinariesNotFoundError: If a server program is missing.
            ClusterVersionError: If the cluster was made by another major version.
            EmbeddedServerError: For everything else that keeps them from starting; nothing is left running then.
        """
        if self._processes is not None:
            raise EmbeddedServerError(f"the servers on {self._data_dir} have been started already")
        with ExitStack() as undo:
            undo.callback(self.stop)
            endpoints = self._start()
            undo.pop_all()
        return endpoints

    def stop(self) -> None:
        """Stop both servers in order and remove their sockets; calling it again does nothing."""
        if os.getpid() != self._owner:
            return  # a fork of the process that started them
        in_order = self._processes is None or self._processes.stop()
        self._processes = None
        if self._lock is not None:
            self._lock.release()
            if not in_order:
                self._lock.wait_until_free(timeout_s=_PREDECESSOR_LIMIT_S)
            self._lock = None
        if self._runtime_dir is not None:
            shutil.rmtree(self._runtime_dir, ignore_errors=True)  # the guard did it, unless it was killed
            self._runtime_dir = None

    def poll(self) -> Mapping[str, ChildStatus]:
        """Return the state of the servers, `postgres` and `valkey`, at this moment.

        Raises:
            GuardError: If the guard was killed; the servers end with it.
        """
        return self._running().poll()

    def kill(self, name: str) -> None:
        """Kill −9 one server (`postgres` or `valkey`), as a fault would."""
        self._running().kill(name)

    def restart(self, name: str) -> None:
        """Stop one server if it runs, start it again on the same socket, and wait until it answers.

        Raises:
            ServerStartError: If it does not become ready.
        """
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
            _remove_left_behind(Path(left_behind))
        installation, valkey_program = find_postgres(), find_valkey()
        runtime = self._runtime_dir = placement.make_runtime_dir(self._runtime_parent)
        self._lock.describe(runtime)
        self._processes = GuardedProcesses(inherit=[self._lock.fd], remove=[runtime])
        self._processes.launch()  # it comes up while the cluster is made, and cleans up if that is interrupted
        database = postgres.Postgres(
            binaries=placement.readable_installation(installation, account),
            cluster=placement.cluster_directory(data_dir, account),
            socket_dir=placement.make_private_dir(runtime / postgres.NAME, account),
            log_file=self._log_file(data_dir, postgres.NAME),
            account=account,
            lock_fd=self._lock.fd,
        )
        secrets = passwords.load_or_create(data_dir, cluster_exists=database.cluster.exists())
        cache = valkey.Valkey(
            program=valkey_program,
            directory=placement.make_private_dir(runtime / valkey.NAME, None),
            log_file=self._log_file(data_dir, valkey.NAME),
            password=secrets.valkey,
        )
        database.ensure_cluster(secrets.postgres)
        self._ready = {postgres.NAME: database.ready, valkey.NAME: lambda _pid: cache.ready()}
        pids = {command.name: self._processes.start(command) for command in (database.command(), cache.command())}
        # From here on only the guard and the servers hold the lock: a fork of this process must not.
        self._lock.release()
        self._wait_until_ready(pids)
        return Endpoints(database_url=database.url(secrets.postgres), redis_url=cache.url())

    def _wait_until_ready(self, pids: Mapping[str, int]) -> None:
        waiting = dict(pids)
        deadline = time.monotonic() + _READY_LIMIT_S
        while waiting:
            status = self._running().poll()
            for name, pid in list(waiting.items()):
                if not status[name].running:
                    raise ServerStartError(self._explain(name, f"ended with status {status[name].returncode}"))
                if self._ready[name](pid):
                    del waiting[name]
            if time.monotonic() > deadline:
                names = " and ".join(waiting)
                raise ServerStartError(
                    self._explain(next(iter(waiting)), f"not ready after {_READY_LIMIT_S:.0f} s: {names}")
                )
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


def _remove_left_behind(runtime_dir: Path) -> None:
    """Remove the sockets of a start whose guard was killed too; no other program owns a directory of that name."""
    if runtime_dir.name.startswith("speciate-") and runtime_dir.is_dir() and runtime_dir.stat().st_uid == os.geteuid():
        shutil.rmtree(runtime_dir, ignore_errors=True)
