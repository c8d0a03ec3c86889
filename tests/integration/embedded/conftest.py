"""Data directories that PostgreSQL's account can reach, and a look at real processes through /proc."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[3]
WAIT_S = 60.0

_PARENT = """
import json, sys
from pathlib import Path
from speciate.embedded.servers import EmbeddedServers
servers = EmbeddedServers(Path(sys.argv[1]))
endpoints = servers.start()
pids = {name: status.pid for name, status in servers.poll().items()}
print(json.dumps({"guard": servers.guard_pid, "pids": pids, "database_url": endpoints.database_url,
                  "redis_url": endpoints.redis_url}), flush=True)
sys.stdin.read()
servers.stop()
"""


@dataclass
class Parent:
    """A script of its own process group that started the servers and waits."""

    process: subprocess.Popen[str]
    guard: int
    pids: dict[str, int]
    database_url: str
    redis_url: str

    @property
    def runtime_dir(self) -> Path:
        return Path(self.redis_url.partition("@")[2]).parents[1]

    def everything(self) -> list[int]:
        """The guard and all that runs below it."""
        return [self.guard, *descendants(self.guard)]


@pytest.fixture
def fresh_dir() -> Iterator[Path]:
    """An empty directory below one that other accounts may pass through, unlike pytest's own."""
    made = Path(tempfile.mkdtemp(prefix="speciate-test-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="session")
def data_dir() -> Iterator[Path]:
    """One data directory for all tests that do not need a fresh one: its cluster is made once."""
    made = Path(tempfile.mkdtemp(prefix="speciate-test-"))
    made.chmod(0o711)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def start_parent() -> Iterator[Callable[..., Parent]]:
    """Start scripts that start the servers; whatever of them is left at the end is killed."""
    started: list[Parent] = []

    def start(data_dir: Path, python: str = sys.executable, **options: object) -> Parent:
        path = [str(CHECKOUT), *(entry for entry in sys.path if entry.endswith("site-packages"))]
        process = subprocess.Popen(
            [python, "-c", _PARENT, data_dir],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            cwd="/",
            env={"PATH": os.environ["PATH"], "PYTHONPATH": ":".join(path)} | options.pop("env", {}),
            **options,
        )
        parent = Parent(process, **json.loads(process.stdout.readline()))
        started.append(parent)
        return parent

    yield start
    for parent in started:
        pids = [*parent.everything(), *parent.pids.values()]
        parent.process.kill()
        parent.process.wait()
        parent.process.stdin.close()
        parent.process.stdout.close()
        kill_all(wait_until_gone(pids))


def wait_for(reached: Callable[[], bool]) -> bool:
    """Wait until it is reached; False after a time in which any healthy machine gets there."""
    deadline = time.monotonic() + WAIT_S
    while not (done := reached()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return done


def wait_until_gone(pids: list[int]) -> list[int]:
    """Return the processes that are still alive after a generous wait."""
    wait_for(lambda: not any(alive(pid) for pid in pids))
    return [pid for pid in pids if alive(pid)]


def alive(pid: int) -> bool:
    fields = _stat(pid)
    return fields is not None and fields[0] not in "ZX"


def descendants(pid: int) -> list[int]:
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        if fields := _stat(int(path.name)):
            parents[int(path.name)] = int(fields[1])
    found: list[int] = []
    level = {pid}
    while level := {child for child, parent in parents.items() if parent in level}:
        found.extend(level)
    return found


def kill_all(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def _stat(pid: int) -> list[str] | None:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
