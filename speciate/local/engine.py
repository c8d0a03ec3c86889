"""``local_client``: a client of the service of a data directory or, without one, of this very process."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from pydantic import SecretStr

from speciate.domain.errors import UnavailableError
from speciate.egress.network import LOOPBACK, PRIVATE
from speciate.embedded.errors import DataDirectoryBusyError
from speciate.embedded.lock import shared_runtime_dir
from speciate.embedded.placement import make_data_dir, make_runtime_dir
from speciate.embedded.secret_key import with_own_secret_key
from speciate.embedded.shared import SharedPostgres
from speciate.local.ownership import FOLDER, OwnRuns
from speciate.local.sandbox import LocalSandbox
from speciate.service_address import service_url
from speciate.settings import AGENT_KEYS, ANY_COMMAND, Settings, http_address, load_settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from speciate.client import Client
    from speciate.local.worker import LocalSignals

_START_LIMIT_S: Final = 30.0
_SERVICE_START_S: Final = 60.0
_GRACE_S: Final = 1


@contextmanager
def local_client(
    settings: Settings | None = None,
    *,
    project: str | None = None,
    dashboard: bool = False,
    sandbox: LocalSandbox | None = None,
    warm: bool = True,
) -> Iterator[Client]:
    """Yield a client whose runs are executed, by a service or by this process until the end of the block.

    That is the service at ``settings.url`` (``SPECIATE_URL``), the one that runs on ``settings.data_dir``, or one at
    the default address if the data directory is the default one. Without any, this process starts the PostgreSQL of the
    data directory and executes the runs that its client creates or resumes; ``client.in_process`` is then True. At the
    end of the block, also after Ctrl-C, SIGTERM or SIGHUP, it pauses those that have not ended, and
    ``client.runs.get(id).resume()`` continues them in another block or service. Runs of a killed process are found
    paused, too.

    Args:
        settings: By default those of the environment.
        project: Project of the client.
        sandbox: That of this process, if it has one already.
        dashboard: Serve pages and API on a free loopback port meanwhile, at ``client.url``.
        warm: Open the sandbox at once, for a block that executes something.

    Raises:
        SpeciateError: PostgreSQL or the sandbox does not start; the message says why.
    """
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # its command line: slow to import, unused
    from speciate.client import Client

    settings = settings or load_settings()
    if (url := service_url(settings)) is not None:
        with Client(url, project=project) as client:
            yield client
        return
    try:
        engine = _Engine(settings, sandbox, dashboard=dashboard, warm=warm)
    except DataDirectoryBusyError as error:
        url = _wait_for_service(settings, error)
        again = partial(local_client, settings, project=project, sandbox=sandbox, dashboard=dashboard, warm=warm)
        with Client(url, project=project) if url else again() as client:
            yield client
        return
    with engine, Client(engine.url, project=project, socket=engine.socket) as client:
        yield client


def _wait_for_service(settings: Settings, error: DataDirectoryBusyError) -> str | None:
    """Return the address of the service that is about to run on the data directory; None once that is free."""
    deadline = time.monotonic() + _SERVICE_START_S
    while (url := service_url(settings)) is None:
        if time.monotonic() > deadline:
            raise error
        time.sleep(0.1)
        with suppress(DataDirectoryBusyError):
            shared_runtime_dir(settings.data_dir)
            return None
    return url


class _Engine:
    """API and worker of this process."""

    def __init__(self, settings: Settings, sandbox: LocalSandbox | None, *, dashboard: bool, warm: bool) -> None:
        """Start; after an error nothing is left running."""
        self._reason = "its command ended"
        self._resources = ExitStack()
        try:
            self._start(settings, sandbox, dashboard=dashboard, warm=warm)
        except BaseException:
            self._resources.close()
            raise

    def __enter__(self) -> None:
        self._resources.enter_context(_stop_on_signals())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            self._reason = "interrupted"
        self._resources.close()

    def _start(self, settings: Settings, sandbox: LocalSandbox | None, *, dashboard: bool, warm: bool) -> None:
        make_data_dir(settings.data_dir)
        self._resources.enter_context(_log_to(settings.data_dir / "logs" / "local.log", settings.log_level))
        settings = with_own_secret_key(settings)
        with ThreadPoolExecutor(1) as starting:
            database = starting.submit(self._start_database, settings)
            # This process imports while the server and the sandbox start on another core.
            sandbox = sandbox or LocalSandbox(settings)
            if warm:
                threading.Thread(target=sandbox.warm, name="sandbox", daemon=True).start()
            from service.app import create_app
            from speciate.local import worker
            from speciate.storage.migrate import ensure_newest_schema

            url = database.result()
        direct = settings.database_direct_url.get_secret_value() if settings.database_direct_url else url
        ensure_newest_schema(direct, data_dir=settings.data_dir if settings.database_url is None else None)
        sockets, folder = self._open_sockets(dashboard=dashboard)
        settings = settings.model_copy(
            update={
                "database_url": SecretStr(url),
                "redis_url": None,
                "token": None,
                "host": "127.0.0.1",
                "port": sockets[1].getsockname()[1] if dashboard else settings.port,
                # Pages on a port have no token, and other accounts of this machine can open them.
                "agent_commands": settings.agent_commands or (() if dashboard else (ANY_COMMAND,)),
                "agent_environment": (*settings.agent_environment, *AGENT_KEYS),
                "allowed_networks": settings.allowed_networks or (LOOPBACK, PRIVATE),
            }
        )
        self.url = http_address(settings.host, settings.port)
        own = OwnRuns(settings.data_dir / FOLDER, folder)
        self._resources.callback(own.close)
        signals = worker.LocalSignals(own)
        stores = worker.open_local_stores(settings, signals)
        self._resources.callback(stores.close)
        server = _ServerThread(create_app(settings, stores=stores, listen=_listener(signals), pages=dashboard), sockets)
        self._resources.callback(server.stop)
        local_worker = worker.LocalWorker(settings, stores, signals, sandbox)
        self._resources.callback(lambda: local_worker.stop(self._reason))
        local_worker.start(warm=warm)
        server.start()

    def _start_database(self, settings: Settings) -> str:
        if settings.database_url is not None:
            return settings.database_url.get_secret_value()
        postgres = SharedPostgres(settings.data_dir)
        self._resources.callback(postgres.stop)
        return postgres.start()

    def _open_sockets(self, *, dashboard: bool) -> tuple[list[socket.socket], Path]:
        """Return a Unix socket in a private folder, and one on loopback for the pages."""
        folder = make_runtime_dir()
        self._resources.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.chmod(0o700)  # whoever can connect is the user: there is no token
        self.socket = str(folder / "api")
        sockets = [self._resources.enter_context(socket.socket(socket.AF_UNIX))]
        sockets[0].bind(self.socket)
        if dashboard:
            sockets.append(self._resources.enter_context(socket.socket()))
            # Not the port of a service, for which another command would take this process.
            sockets[1].bind(("127.0.0.1", 0))
        return sockets, folder


class _ServerThread:
    """Serves an application from a thread."""

    def __init__(self, app: FastAPI, sockets: list[socket.socket]) -> None:
        import uvicorn

        from service.http_protocol import LimitedHttpProtocol
        from speciate.http_server import HttpServer

        config = uvicorn.Config(
            app,
            http=LimitedHttpProtocol,
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            timeout_graceful_shutdown=_GRACE_S,
        )
        self._server = HttpServer(config)
        self._thread = threading.Thread(target=self._server.run, args=(sockets,), name="api", daemon=True)

    def start(self) -> None:
        self._thread.start()
        deadline = time.monotonic() + _START_LIMIT_S
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise UnavailableError("the API of this process did not start; its log says why.")
            time.sleep(0.002)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.handle_exit(signal.SIGTERM, None)
            self._thread.join()


def _listener(signals: LocalSignals) -> Callable[[Callable[[UUID], None]], Coroutine[Any, Any, None]]:
    async def listen(wake: Callable[[UUID], None]) -> None:
        loop = asyncio.get_running_loop()

        def forward(run_id: UUID) -> None:
            with suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(wake, run_id)

        signals.wake = forward
        await asyncio.Event().wait()

    return listen


@contextmanager
def _log_to(path: Path, level: str) -> Iterator[None]:
    """Write what API and worker log to a file: they share the terminal of the command."""
    from speciate.telemetry.logs import TextFormatter

    path.parent.mkdir(mode=0o700, exist_ok=True)
    handler = logging.FileHandler(path, encoding="utf-8", delay=True)
    handler.setFormatter(TextFormatter(()))
    handler.setLevel(level.upper())
    loggers = [logging.getLogger(name) for name in ("speciate", "service", "workers", "evaluators", "uvicorn")]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
            logger.propagate = True
        handler.close()


@contextmanager
def _stop_on_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP, which would end the process at once, leave the block in order."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    numbers = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, leave)
    _caught.update(numbers)
    try:
        yield
    finally:
        _restore_default(numbers)
        _caught.difference_update(numbers)


_caught: set[signal.Signals] = set()


def _restore_default(numbers: Iterable[signal.Signals]) -> None:
    for number in numbers:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, numbers)


# Processes that a function forks end at once: a pool of them ends its own so, and would wait for one that does not.
os.register_at_fork(
    before=lambda: signal.pthread_sigmask(signal.SIG_BLOCK, _caught),
    after_in_parent=lambda: signal.pthread_sigmask(signal.SIG_UNBLOCK, _caught),
    after_in_child=lambda: _restore_default(_caught),
)
