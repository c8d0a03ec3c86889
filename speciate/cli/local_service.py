"""Run the whole service on one machine: servers, schema, API and workers, as children of this process."""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Final

import httpx
from pydantic import SecretStr

from speciate import process_roots
from speciate.domain.access import DEFAULT_PROJECT
from speciate.domain.errors import NotFoundError, UnavailableError
from speciate.domain.policy import BUILT_IN
from speciate.domain.visibility import Visibility, visibility_of
from speciate.egress import sealing
from speciate.egress.network import LOOPBACK
from speciate.embedded.errors import GuardEndedError
from speciate.embedded.lock import DataDirectoryLock
from speciate.embedded.placement import make_data_dir
from speciate.embedded.processes import ChildCommand, ChildStatus, GuardedProcesses, Preload
from speciate.embedded.secret_key import with_own_secret_key
from speciate.embedded.servers import EmbeddedServers
from speciate.local.ownership import FOLDER
from speciate.local.servers import announce_servers, withdraw_servers
from speciate.local_ports import find_free_port, listening
from speciate.policies.bundled import checkpoints
from speciate.ports.work import Queue
from speciate.service_address import has_server_announcement
from speciate.settings import SERVE_TOKEN_VARIABLE, Settings, check_exposure, http_address, is_loopback, secret_of

PREDECESSOR_TIMEOUT_S: Final = 15.0
_TOKENS: Final = ("SPECIATE_TOKEN", "SPECIATE_METRICS_TOKEN")
_ADDRESSES: Final = ("SPECIATE_DATABASE_URL", "SPECIATE_DATABASE_DIRECT_URL", "SPECIATE_REDIS_URL")
_WITHHELD_SECRETS: Final = {
    "evaluate": (sealing.VARIABLE, SERVE_TOKEN_VARIABLE, *_TOKENS),
    "generate": _TOKENS,
    "learn": (sealing.VARIABLE, SERVE_TOKEN_VARIABLE, *_TOKENS),
    "control": _TOKENS,
    "policies": (sealing.VARIABLE, *_TOKENS, *_ADDRESSES),
}
"""Secrets that a process does not need and therefore does not receive."""
_WILDCARD_HOSTS: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - loopback address to connect to
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Numeric libraries must not start a thread per core in every worker."""
PRELOADED: Final = (
    "anyio._backends._asyncio", "celery.apps.worker", "celery.bin.celery", "celery.concurrency.prefork",
    "celery.concurrency.thread", "celery.fixups.django", "celery.worker.components", "celery.worker.consumer",
    "cryptography.fernet", "cryptography.hazmat.primitives.kdf.hkdf",
    "service.app", "service.dashboard.routes", "service.http_protocol",
    "speciate.cli.serve", "speciate.http_server", "speciate.inference.app",
    "uvicorn.lifespan.on", "uvicorn.loops.uvloop",
    "workers.environment", "workers.reconciler", "workers.startup", "workers.tasks", "workers.webhooks",
)  # fmt: skip
"""Modules that the processes share; see ADR 43."""
_CELERY: Final = ("--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING")


class LocalService(AbstractContextManager["LocalService"]):
    """Start all processes, and stop them in reverse order. No process survives this one, even after SIGKILL.

    After the start, ``settings`` have the addresses of embedded servers.
    """

    ready_timeout_s = 180.0

    def __init__(self, settings: Settings, models: Mapping[str, Path] | None = None, *, learns: bool = False) -> None:
        self.settings = settings
        self.learns = learns
        self._models = dict(models or {})
        self.servers: EmbeddedServers | None = None
        self._embedded_database = False
        self.processes: GuardedProcesses | None = None
        self._commands: dict[str, ChildCommand] = {}
        self._announced = False
        self._policy_port = 0
        self.tiers: tuple[str, ...] = ()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """URL of this API as seen from this machine; ``settings.url`` may name a proxy or another service."""
        host = self.settings.host
        return http_address(_WILDCARD_HOSTS.get(host, host), self.settings.port)

    def start(self) -> Iterator[str]:
        """Start all processes, yielding what is done next."""
        check_exposure(self.settings)
        if self.settings.redis_url is not None:
            check_redis(self.settings.redis_url.get_secret_value())
        make_data_dir(self.settings.data_dir).joinpath("logs").mkdir(mode=0o700, exist_ok=True)
        self.settings = with_own_secret_key(self.settings)
        # A second service must report the directory in use, not the port; a port in use leaves no cluster behind.
        lock = DataDirectoryLock(self.settings.data_dir)
        lock.acquire(timeout_s=PREDECESSOR_TIMEOUT_S)
        lock.release()
        yield "Starting the servers …"
        patience_s = PREDECESSOR_TIMEOUT_S if has_server_announcement(self.settings) else 0.0
        with listening(self.settings.host, self.settings.port, "the API", patience_s) as probe:
            self.settings = self.settings.model_copy(update={"port": int(probe.getsockname()[1])})
        self._start_servers()
        self._policy_port = find_free_port()
        yield "Starting API and workers, upgrading the schema …"
        self._start_processes()
        from speciate.storage.migrate import ensure_newest_schema

        s, data_dir = self.settings, self.settings.data_dir if self._embedded_database else None
        ensure_newest_schema(_secret(s.database_direct_url or s.database_url), data_dir=data_dir)
        yield "Waiting for the API …"
        self._wait_for_response("the API is", "api", f"{self.url}/readyz")
        yield "Waiting for workers and policies …"
        if self.settings.policy_url is None:
            self._wait_for_response(
                "the inference server is", "policies", f"http://127.0.0.1:{self._policy_port}/health"
            )
        self._register_policies()
        self._wait_for_workers()
        announce_servers(self.settings, self.url, embedded=self.servers is not None)
        self._announced = True

    def stop(self) -> None:
        """Stop workers and API, then the servers."""
        if self._announced:
            withdraw_servers(self.settings)
            self._announced = False
        if self.processes is not None:
            # Signal all at once: they stop independently of each other, and lost work is repeated.
            with suppress(GuardEndedError):
                for name, status in self.poll().items():
                    if status.running:
                        self.processes.signal(name, SIGTERM)
            self.processes.stop()
            self.processes = None
        if self.servers is not None:
            self.servers.stop()
            self.servers = None

    def poll(self) -> Mapping[str, ChildStatus]:
        return self.processes.poll() if self.processes is not None else {}

    def restart_ended(self) -> list[str]:
        """Restart processes that ended, servers first; return their names."""
        restarted = []
        if self.servers is not None:
            for name in _ended(self.servers.poll()):
                self.servers.restart(name)
                restarted.append(name)
        if self.processes is not None:
            for name in _ended(self.poll()):
                self.processes.start(self._commands[name])
                restarted.append(name)
        return restarted

    def log_of(self, name: str) -> Path:
        return self.settings.data_dir / "logs" / f"{name}.log"

    def _start_servers(self) -> None:
        if self.settings.database_url is not None and self.settings.redis_url is not None:
            return
        self.servers = EmbeddedServers(self.settings.data_dir)
        endpoints = self.servers.start()
        # Runs of killed commands go on here: no later command may pause them.
        shutil.rmtree(self.settings.data_dir / FOLDER, ignore_errors=True)
        urls = {"database_url": endpoints.database_url, "redis_url": endpoints.redis_url}
        embedded = {name: SecretStr(url) for name, url in urls.items() if getattr(self.settings, name) is None}
        self._embedded_database = "database_url" in embedded
        self.settings = self.settings.model_copy(update=embedded)

    def _start_processes(self) -> None:
        path = [str(process_roots.FOLDER), *filter(None, sys.path)]
        self.processes = GuardedProcesses(preload=Preload(PRELOADED, list(dict.fromkeys(path)), _ONE_THREAD))
        self.processes.launch()
        # What this process needs next, while the guard imports on another core.
        import speciate.client
        import speciate.messaging.presence
        import speciate.storage.migrate  # noqa: F401

        for command in self._process_commands():
            self._commands[command.name] = command
            self.processes.start(command)

    def _process_commands(self) -> Iterator[ChildCommand]:
        s = self.settings
        api = ["--host", s.host, "--port", str(s.port), "--log-level", "warning", "--grace", "3"]
        yield self._command("api", "service", *api)
        if s.policy_url is None:
            # Without names, the bundled policies are served.
            folders = {**checkpoints(), **self._models} if self._models else {}
            served = [f"{name}={folder}" for name, folder in folders.items()]
            served += ["--port", str(self._policy_port), "--learned", str(s.checkpoints)]
            yield self._command("policies", "speciate.cli", "serve", *served)
        workers = {
            "evaluate": ("-Q", Queue.EVALUATE.value, "-P", "prefork", "-c", str(s.slots)),
            "generate": ("-Q", Queue.GENERATE.value, "-P", "threads", "-c", str(s.generate_slots)),
            **({"learn": ("-Q", Queue.LEARN.value, "-P", "threads", "-c", "1")} if self.learns else {}),
            "control": ("-Q", f"{Queue.RETRY.value},{Queue.CONTROL.value}", "-P", "threads", "-c", "2"),
        }
        for name, options in workers.items():
            worker = ("-A", "workers.app", "-q", "worker", *options, "-n", f"{name}@%h", *_CELERY)
            yield self._command(name, "celery", *worker)

    def _command(self, name: str, module: str, *options: str) -> ChildCommand:
        environment = self._environment()
        for variable in _WITHHELD_SECRETS.get(name, ()):
            environment.pop(variable, None)
        if name == "learn":  # otherwise torch leaves a folder in /tmp
            environment["TORCHINDUCTOR_CACHE_DIR"] = str(self.settings.data_dir / "torch")
        # Longer than the drain of a worker: leases of a killed worker stay taken until they expire.
        argv, log = [sys.executable, "-m", module, *options], self.log_of(name)
        return ChildCommand(name, argv, environment, log, grace_s=5.0, death_signal=SIGKILL, module=module)

    def _environment(self) -> dict[str, str]:
        s = self.settings
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("SPECIATE_")}
        # Without an operator token every user has an account on this machine; holders of project tokens may have none.
        networks = s.allowed_networks or ((LOOPBACK,) if s.token is None and is_loopback(s.host) else ())
        ours = s.as_environment() | {
            "SPECIATE_POLICY_URL": s.policy_url or f"http://127.0.0.1:{self._policy_port}/v1",
            "SPECIATE_ALLOWED_NETWORKS": ",".join(networks),
            # No other replica can take over, and the user waits after Ctrl-C.
            "SPECIATE_DRAIN_S": str(min(s.drain_s, 3.0)),
            "SPECIATE_SHUTDOWN_DELAY_S": "0",
        }
        # Not a setting: the token that every inference server requires, including the local one.
        if (serve_token := secret_of(SERVE_TOKEN_VARIABLE)) is not None:
            ours[SERVE_TOKEN_VARIABLE] = serve_token
        ours |= {**_ONE_THREAD, "PYTHONUNBUFFERED": "1"}
        return process_roots.child_environment(inherited | ours)

    def _wait_for_response(self, subject: str, process: str, url: str) -> None:
        headers = {"Authorization": f"Bearer {_secret(self.settings.token)}"} if self.settings.token else {}
        with httpx.Client(headers=headers if process == "api" else {}, timeout=5, trust_env=False) as client:

            def responds() -> bool:
                with suppress(httpx.TransportError):
                    return client.get(url).status_code == httpx.codes.OK
                return False

            self._wait(subject, process, responds)

    def _wait_for_workers(self) -> None:
        import redis

        from speciate.messaging.presence import present_workers

        # A further replica has a suffix, such as api-b.
        expected = {name for name in self._commands if name.partition("-")[0] not in {"api", "policies"}}
        with redis.Redis.from_url(_secret(self.settings.redis_url)) as client:

            def ready() -> bool:
                workers = present_workers(client)
                self.tiers = tuple(sorted({worker.tier for worker in workers if worker.tier}))
                return expected <= {worker.name.partition("@")[0] for worker in workers}

            self._wait("the workers are", "control", ready)

    def _wait(self, subject: str, process: str, ready: Callable[[], bool]) -> None:
        deadline = time.monotonic() + self.ready_timeout_s
        while not ready():
            for name, status in self.poll().items():
                if not status.running:
                    log = self.log_of(name)
                    lines = log.read_text("utf-8", "replace").strip().splitlines() if log.exists() else []
                    last = lines[-1][-2000:] if lines else "its log is empty."
                    raise UnavailableError(
                        f"{name} exited during startup with code {status.returncode}: {last}\nSee {log}."
                    )
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"{subject} not ready after {self.ready_timeout_s:.0f} s. See {self.log_of(process)}."
                )
            time.sleep(0.02)

    def _register_policies(self) -> None:
        """Register the policies that every project has, and the downloaded models."""
        from speciate.client import Client
        from speciate.inference.downloads.catalogue import policy_of_model

        token = self.settings.token
        secret = None if token is None else _secret(token)
        with Client(self.url, secret, project=DEFAULT_PROJECT) as service:
            for name in BUILT_IN:
                service.policies.get(name)  # the service adds it if it is missing
            for policy in [policy_of_model(name, folder) for name, folder in self._models.items()]:
                with suppress(NotFoundError):
                    stored = service.policies.get(policy.slug)
                    # Adding what a user archived or deleted would restore it.
                    if stored.digest == policy.digest or visibility_of(stored) is not Visibility.VISIBLE:
                        continue
                service.policies.add(policy)


def _ended(statuses: Mapping[str, ChildStatus]) -> list[str]:
    return [name for name, status in statuses.items() if not status.running]


def _secret(value: SecretStr | None) -> str:
    return "" if value is None else value.get_secret_value()


def check_redis(url: str) -> dict[str, str]:
    """Return what a server says about itself, or raise ``UnavailableError``."""
    import redis

    try:
        with redis.Redis.from_url(url, socket_connect_timeout=5, socket_timeout=5) as client:
            info: dict[str, str] = client.info("server")
            return info
    except (redis.RedisError, ValueError) as error:
        raise UnavailableError(
            f"Redis does not respond: {str(error).rstrip('.')}.", remedy="Check SPECIATE_REDIS_URL."
        ) from None
