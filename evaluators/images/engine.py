"""Container engines of this machine: what they are called, whether they keep limits, and their command lines."""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from evaluators.contained.bounds import cpu_rlimit, lowered
from evaluators.contained.proc import STARTED, ProcFolder
from speciate.domain.capabilities import COPIES, IMAGES
from speciate.domain.errors import EvaluatorUnavailableError

if TYPE_CHECKING:  # the relay imports this file, and must start fast
    from speciate.domain.limits import Limits

ENGINES: Final = ("podman", "docker")
"""Names of the supported engines; the first one that works is used."""

HOST: Final = "speciate.host"
CANDIDATE: Final = "/candidate"
"""Folder with the program in a container, and its working folder."""

_ANSWER_S: Final = 20.0
_PULL_S: Final = 1800.0
_KNOWN_S: Final = 60.0
_NEEDED: Final = ("memory", "pids")
_FIRST_USER: Final = 2_000_000_000
"""Host user of a container's root if the worker is root. It owns no files."""
_USERS: Final = 65_536
_NAME_PARTS: Final = 4
_NOBODY: Final = 65_534
_OPEN_FILES: Final = 1024
_USER_PROCESSES: Final = 1 << 15
"""Processes of all containers together: they share a user. Each container has a limit of its own."""
_VARIABLES: Final = "PATH HOME USER DOCKER_ CONTAINER XDG_ DBUS_ REGISTRY_AUTH_FILE TMPDIR STORAGE_"
"""Beginnings of the variables of an engine's commands."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A container engine; ``problem`` is why it cannot be used; it ``shares`` if it can limit a container's cores."""

    name: str
    version: str = ""
    rootless: bool = False
    problem: str = ""
    shares: bool = True

    @property
    def capabilities(self) -> frozenset[str]:
        # docker fills memory folders with nothing: its programs would find the image's folder empty.
        return frozenset({IMAGES, COPIES} if self.name == "podman" else {IMAGES})

    def options(self, limits: Limits, writable: Sequence[str], variables: dict[str, str]) -> list[str]:
        """Return the begin of a ``run``; ``writable`` are folders of the image, ``variables`` come beside its own."""
        memory = f"{limits.memory_bytes + limits.tmp_bytes * (1 + len(writable))}b"
        tasks = limits.threads + limits.processes
        argv = [self.name, "run", "--interactive", "--pull", "never", "--network", "none", "--read-only"]
        argv += ["--cap-drop", "all", "--security-opt", "no-new-privileges", "--ipc", "private"]
        argv += ["--hostname", "candidate", "--label", f"{HOST}={_host()}"]
        argv += ["--memory", memory, "--memory-swap", memory, "--pids-limit", str(tasks), "--log-driver", "none"]
        argv += ["--cpus", str(limits.cores)] if self.shares else []
        for name, value in {
            "cpu": cpu_rlimit(limits.cpu_s)[0],
            "fsize": limits.file_bytes,
            "core": 0,
            "nofile": lowered(resource.RLIMIT_NOFILE, _OPEN_FILES),
            "nproc": lowered(resource.RLIMIT_NPROC, _USER_PROCESSES),
        }.items():
            argv += ["--ulimit", f"{name}={value}:{value}"]
        for variable, text in ({"HOME": "/tmp", "TMPDIR": "/tmp"} | variables).items():  # noqa: S108  # in the container
            argv += ["--env", f"{variable}={text}"]
        size = f"size={limits.tmp_bytes}"
        # runc gives it the mode that the image's folder has.
        owner = f",uid={_NOBODY},gid={_NOBODY}" if self.name == "docker" else ""
        argv += ["--tmpfs", f"/tmp:rw,exec,nosuid,nodev,mode=1777,{size}{owner}"]  # noqa: S108
        for folder in sorted({*writable} - {"/tmp"}):  # noqa: S108
            argv += ["--tmpfs", f"{folder}:rw,exec,nosuid,nodev,size={limits.tmp_bytes}"]
        return [*argv, *self._isolation()]

    def _isolation(self) -> list[str]:
        if self.name == "docker":
            return ["--user", f"{_NOBODY}:{_NOBODY}"]
        argv = ["--user", "0:0", "--read-only-tmpfs=false", "--no-hosts"]
        if not self.rootless:  # its root would be the machine's
            argv += ["--uidmap", f"0:{_FIRST_USER}:{_USERS}", "--gidmap", f"0:{_FIRST_USER}:{_USERS}"]
        return argv

    def remove(self, name: str) -> bool:
        now = ["--time", "0"] if self.name == "podman" else []
        return self.call("rm", "--force", "--volumes", *now, name).ok

    def prepare(self, image: str) -> None:
        """Bring an image onto this machine unless it is here, and lay out its files for this worker's user."""
        if not self.call("image", "inspect", image).ok:
            pulled = self.call("pull", "--quiet", image, timeout_s=_PULL_S)
            if not pulled.ok:
                raise EvaluatorUnavailableError(
                    f"{self.name} cannot pull the image {image}: {_reason(pulled)}",
                    remedy=f"Pull it by hand on the worker (`{self.name} pull {image}`), log in to its registry with"
                    f" `{self.name} login`, or correct `image`; then try again, or resume the run.",
                )
        name = container_name()
        command = ["create", "--name", name, *self._isolation(), "--entrypoint", "true", image]
        created = self.call(*command, timeout_s=_PULL_S)
        self.remove(name)
        if not created.ok:
            raise EvaluatorUnavailableError(
                f"{self.name} cannot create a container of {image}: {_reason(created)}",
                remedy=f"Try `{self.name} run --rm {image}` as the worker's user; `speciate doctor` lists the engines.",
            )

    def sweep(self) -> int:
        listed = self.call("ps", "--all", "--filter", f"label={HOST}={_host()}", "--format", "{{.Names}}")
        names = listed.text.split() if listed.ok else ()
        return sum(not _alive(name) and self.remove(name) for name in names)

    def call(self, *arguments: str, timeout_s: float = _ANSWER_S) -> EngineReply:
        return _answer([self.name, *arguments], timeout_s)


@dataclass(frozen=True, slots=True)
class EngineReply:
    """Whether an engine's command succeeded, and its output or error."""

    ok: bool
    text: str


def find_engine() -> Engine | None:
    return next((engine for engine in engines() if not engine.problem), None)


def require_engine(capabilities: Collection[str]) -> Engine:
    if (engine := find_engine()) is not None and engine.capabilities.issuperset(capabilities):
        return engine
    problems = [f"{each.name} {each.problem or 'has no writable folders of images'}" for each in engines()]
    raise EvaluatorUnavailableError(
        f"The problem has an image, and this machine does not run it: {'; '.join(problems)}.",
        remedy="Install podman (package `podman`), for `writable` as well; `speciate doctor` lists the engines.",
    )


def engines() -> list[Engine]:
    return [_examine(name, shutil.which(name)) for name in ENGINES]


def container_name() -> str:
    """Return a new name that tells which process runs the container: its id and its start, which no later one has."""
    return f"speciate-{os.getpid()}-{_started(os.getpid())}-{uuid4().hex}"


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(tuple(_VARIABLES.split()))}


def _examine(name: str, path: str | None) -> Engine:
    if path is None:
        return Engine(name, problem="is not installed")
    return _examined(name, path, os.geteuid(), int(time.monotonic() // _KNOWN_S))


@lru_cache(maxsize=8)
def _examined(name: str, _path: str, _user: int, _period: int) -> Engine:
    answer = _answer([name, "info", "--format", "json" if name == "podman" else "{{json .}}"], _ANSWER_S)
    try:
        info = json.loads(answer.text) if answer.ok else None
    except ValueError:
        info = None
    if not isinstance(info, dict):
        return Engine(name, problem=f"does not work: {' '.join(answer.text.split())[-200:] or 'no answer'}")
    return _podman(info) if "host" in info else _docker(name, info)


def _podman(info: dict[str, Any]) -> Engine:
    host = info["host"]
    rootless = bool(host["security"]["rootless"])
    version = str(info.get("version", {}).get("Version", "?"))
    lacking = [each for each in _NEEDED if each not in host.get("cgroupControllers", ())]
    if rootless and host.get("cgroupVersion") != "v2":
        lacking = [*_NEEDED]
    why = f"cannot limit {' and '.join(lacking)}: it needs version 2 of control groups, delegated to this user"
    return Engine(
        "podman", version, rootless, why if lacking else "", shares="cpu" in host.get("cgroupControllers", ())
    )


def _docker(name: str, info: dict[str, Any]) -> Engine:
    version = str(info.get("ServerVersion") or "")
    if not version:
        return Engine(
            name, problem=f"does not work: {' '.join(map(str, info.get('ServerErrors') or ['no daemon']))[:200]}"
        )
    rootless = any("rootless" in str(option) for option in info.get("SecurityOptions") or ())
    lacking = [each for each, key in zip(_NEEDED, ("MemoryLimit", "PidsLimit"), strict=True) if not info.get(key)]
    why = f"cannot limit {' and '.join(lacking)}" if lacking else ""
    return Engine(name, version, rootless, why, shares=bool(info.get("CpuCfsQuota")))


def _answer(argv: Sequence[str], timeout_s: float) -> EngineReply:
    try:
        ended = subprocess.run(
            argv, env=environment(), stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=timeout_s
        )
    except (OSError, subprocess.SubprocessError) as error:
        return EngineReply(False, str(error))
    ok = ended.returncode == 0
    return EngineReply(ok, (ended.stdout if ok else ended.stderr).decode("utf-8", "replace").strip())


def _reason(answer: EngineReply) -> str:
    line = next((line.strip() for line in reversed(answer.text.splitlines()) if line.strip()), "no reason given")
    return f"{line[:500].rstrip('.')}."


def _alive(name: str) -> bool:
    """Return True if the process that runs a container is there, or the name tells none."""
    parts = name.split("-")
    return len(parts) != _NAME_PARTS or not parts[1].isdigit() or _started(int(parts[1])) == parts[2]


def _started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty if there is none."""
    fields = ProcFolder().stat(str(pid))
    return fields[STARTED].decode("ascii") if fields else ""


def _host() -> str:
    return f"{socket.gethostname()}-{Path('/proc/self/ns/pid').stat().st_ino}"
