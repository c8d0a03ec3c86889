"""The process graph of ``docker-compose.yml`` on this machine, without containers: ``python -m benchmarks.topology``.

Commands, environments, secrets, dependencies, health checks and replicas are the file's. What differs: PostgreSQL and
Valkey are the embedded servers; the proxy is this machine's nginx; a name of the compose network becomes an address of
loopback, with a port of its own for every replica.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.topology.compose import ROOT, compose, default_services, replicas
from speciate.embedded.processes import ChildCommand, GuardedProcesses
from speciate.embedded.servers import EmbeddedServers

LIMIT_S: Final = 240.0
_CHECK_S: Final = 1.0
"""Checks are programs, and take from what they wait for."""
_SERVERS: Final = ("postgres", "redis")
_PROGRAMS: Final = {
    "python": [sys.executable],
    "speciate": [sys.executable, "-m", "speciate.cli"],
    "celery": [sys.executable, "-m", "celery"],
}


@dataclass
class Topology:
    """Everything that runs.

    Attributes:
        home: Where secrets, logs and configurations lie.
        processes: The processes, by service and number: ``api-1``.
        ports: Port of every replica that listens, by service.
    """

    home: Path
    processes: GuardedProcesses
    services: dict[str, dict[str, Any]]
    ports: dict[str, list[int]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """Address of the proxy."""
        return f"http://127.0.0.1:{self.ports['proxy'][0]}"

    @property
    def token(self) -> str:
        """The token that the service asks for."""
        return (self.home / "secrets" / "token").read_text()

    def log(self, name: str) -> str:
        """Return what a process has written."""
        return (self.home / "logs" / f"{name}.log").read_text()

    def names(self, service: str) -> list[str]:
        """Return the names of a service's processes."""
        return [f"{service}-{i + 1}" for i in range(replicas(self.services[service]))]

    def start(self) -> None:
        """Start every service once what it depends on is as it asks; return when all are healthy."""
        deadline = time.monotonic() + LIMIT_S
        waiting, unchecked = dict(self.services), list(self.services)
        healthy, again = set(_SERVERS), dict[str, float]()
        while waiting or unchecked:
            for name in [name for name in waiting if self._may_start(name, healthy)]:
                for number, process in enumerate(self.names(name)):
                    self.processes.start(self.command(name, number, process))
                del waiting[name]
            # Check services that others depend on first.
            for name in [
                name for name in unchecked if name not in waiting and time.monotonic() >= again.get(name, 0.0)
            ]:
                if self._is_well(name):
                    healthy.add(name)
                    unchecked.remove(name)
                again[name] = time.monotonic() + _CHECK_S
            if time.monotonic() > deadline:
                raise TimeoutError(f"{unchecked} not well after {LIMIT_S:g} s: {self.log(f'{unchecked[0]}-1')[-2000:]}")
            time.sleep(0.2)

    def _may_start(self, name: str, healthy: set[str]) -> bool:
        return all(other in healthy for other in self.services[name].get("depends_on", {}))

    def _is_well(self, name: str) -> bool:
        """Return True if a service is healthy, or if a one-off service has succeeded."""
        service, status = self.services[name], self.processes.poll()
        ended = [status[process].returncode for process in self.names(name)]
        if service["restart"] == "no":
            if any(code not in {None, 0} for code in ended):
                raise RuntimeError(f"{name} failed: {self.log(f'{name}-1')}")
            return all(code == 0 for code in ended)
        if any(code is not None for code in ended):
            raise RuntimeError(f"{name} ended: {self.log(f'{name}-1')}")
        kind, *test = service["healthcheck"]["test"]
        for number in range(len(ended)):
            shell = ["sh", "-c", self._local(test[0], name, number)]
            argv = shell if kind == "CMD-SHELL" else self._argv(name, number, test)
            environment = self._environment(name, number)
            if subprocess.run(argv, env=environment, cwd=ROOT, capture_output=True, timeout=60).returncode:
                return False
        return True

    def command(self, name: str, number: int, process: str) -> ChildCommand:
        """Return the command of one process of a service."""
        argv = self._argv(name, number, self.services[name]["command"])
        if name == "proxy":
            ours = self._nginx_folder()
            places = {"/etc/speciate": str(ours), "/tmp": f"{ours}/run"}
            argv = [re.sub(r"/etc/speciate|/tmp", lambda place: places[place[0]], each) for each in argv]
        return ChildCommand(process, argv, self._environment(name, number), self.home / "logs" / f"{process}.log", ROOT)

    def _argv(self, name: str, number: int, command: list[str]) -> list[str]:
        program, *rest = command
        return [*_PROGRAMS.get(program, [program]), *(self._local(each, name, number) for each in rest)]

    def _environment(self, name: str, number: int) -> dict[str, str]:
        ours = {
            "PATH": f"{os.environ['PATH']}:/usr/sbin",
            "PYTHONPATH": str(ROOT),
            "SPECIATE_DATA_DIR": str(self.home / "data"),
        }
        given = self.services[name].get("environment", {})
        return ours | {key: self._local(str(value), name, number) for key, value in given.items()}

    def _local(self, text: str, name: str, number: int) -> str:
        """Return a text of the file with addresses and paths of this machine."""
        for service, ports in self.ports.items():
            text = re.sub(rf"\b{service}:\d+", f"127.0.0.1:{ports[0]}", text)
        text = text.replace("/run/secrets", str(self.home / "secrets")).replace("0.0.0.0", "127.0.0.1")
        if name in self.ports:
            port, ours = _port(name, self.services[name]), str(self.ports[name][number])
            text = ours if text == port else re.sub(rf"(?<=127\.0\.0\.1:){port}\b", ours, text)
        return text

    def _nginx_folder(self) -> Path:
        """Return what stands for ``/etc/speciate``, with the configuration in it and ``run`` for ``/tmp``."""
        if not has_nginx():
            raise FileNotFoundError("the proxy needs nginx: install the package `nginx-light`")
        text = (ROOT / "deploy" / "proxy" / "nginx.conf").read_text()
        # Names are looked up by the network's own server there; here every replica is named.
        text = re.sub(r"^ *resolver .*\n", "", text, flags=re.MULTILINE)
        servers = "\n".join(f"    server 127.0.0.1:{port} max_fails=0;" for port in self.ports["api"])
        text, replaced = re.subn(r"^ *server api:8420 resolve.*$", servers, text, flags=re.MULTILINE)
        assert replaced == 1
        folder = self.home / "nginx"
        (folder / "run").mkdir(parents=True, exist_ok=True)
        text = text.replace("/tmp/", f"{folder}/run/").replace(
            "listen 8080", f"listen 127.0.0.1:{self.ports['proxy'][0]}"
        )
        (folder / "nginx.conf").write_text(text)
        return folder


def _port(name: str, service: dict[str, Any]) -> str:
    command = service.get("command", [])
    return "8080" if name == "proxy" else command[command.index("--port") + 1] if "--port" in command else ""


def has_nginx() -> bool:
    """Return True if nginx is installed."""
    return shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin") is not None


@contextlib.contextmanager
def topology() -> Iterator[Topology]:
    """Start the whole graph, and stop it at the end."""
    home = Path(tempfile.mkdtemp(prefix="speciate-topology-"))
    home.chmod(0o711)
    (home / "logs").mkdir()
    servers = EmbeddedServers(home / "data")
    try:
        subprocess.run([ROOT / "deploy" / "make-secrets.sh", home / "secrets"], check=True)
        endpoints = servers.start()
        for name, address in (("database_url", endpoints.database_url), ("redis_url", endpoints.redis_url)):
            (home / "secrets" / name).write_text(address)
        services = {name: each for name, each in default_services(compose()).items() if name not in _SERVERS}
        with GuardedProcesses() as processes:
            graph = Topology(home, processes, services)
            with contextlib.ExitStack() as held:
                for name, service in services.items():
                    if _port(name, service):
                        probes = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in graph.names(name)]
                        graph.ports[name] = [probe.getsockname()[1] for probe in probes]
            graph.start()
            yield graph
    finally:
        servers.stop()
        shutil.rmtree(home)
