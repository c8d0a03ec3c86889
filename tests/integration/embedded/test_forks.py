"""Forks of a guard that has preloaded modules: they share its memory, and nothing else of it or of each other."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from speciate.cli.local_service import PRELOADED
from speciate.embedded.processes import ChildCommand, GuardedProcesses, Preload

from .conftest import wait_for, wait_until_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="a guard forks on Linux only")

SECRET = "correct-horse-battery-staple"
CHILD = """
import json, os, signal, sys, threading
import shared
print(json.dumps({
    "shared": shared.PID == os.getppid(), "argv": sys.argv[1:], "name": __name__, "input": sys.stdin.read(),
    "environment": dict(os.environ), "cwd": os.getcwd(), "session": os.getsid(0) == os.getpid(),
    "fds": sorted(int(fd) for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")),
    "term": signal.getsignal(signal.SIGTERM) == signal.SIG_DFL,
    "title": open("/proc/self/cmdline").read(),
}), flush=True)
print("an error", file=sys.stderr)
if "stay" in sys.argv:
    threading.Event().wait()
sys.exit(7)
"""

Command = Callable[..., ChildCommand]


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "shared.py").write_text("import os\nPID = os.getpid()\n")
    (folder / "child.py").write_text(CHILD)
    (folder / "broken.py").write_text("raise RuntimeError('not today')\n")
    (folder / "busy.py").write_text(
        "import threading\nthreading.Thread(target=threading.Event().wait, daemon=True).start()\n"
    )
    (folder / "open_file.py").write_text("import os\nFILE = os.open(os.devnull, os.O_RDONLY)\n")
    return folder


@pytest.fixture
def command(tmp_path: Path, modules: Path) -> Command:
    def make(name: str, *arguments: str, **env: str) -> ChildCommand:
        argv = [sys.executable, "-m", "child", *arguments]
        environment = {"PYTHONPATH": str(modules), **env}
        return ChildCommand(name, argv, environment, tmp_path / f"{name}.log", module="child")

    return make


@pytest.fixture
def guarded(modules: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GuardedProcesses]:
    monkeypatch.setenv("SPECIATE_TOKEN", SECRET)
    with GuardedProcesses(preload=preload(modules, "shared")) as processes:
        yield processes


def preload(modules: Path, *names: str) -> Preload:
    return Preload(names, [str(modules), *sys.path], {"OPENBLAS_NUM_THREADS": "1"})


def told(log: Path) -> dict[str, object]:
    import json

    assert wait_for(lambda: log.exists() and log.read_text().count("\n") >= 2)
    first, *rest = log.read_text().splitlines()
    assert "an error" in rest
    return dict(json.loads(first))


def test_a_fork_is_a_program_of_its_own(guarded: GuardedProcesses, command: Command, tmp_path: Path) -> None:
    guarded.start(command("one", "a", "b c", KEY="value"))
    found = told(tmp_path / "one.log")
    assert found["shared"]
    assert (found["argv"], found["name"], found["input"], found["cwd"]) == (["a", "b c"], "__main__", "", "/")
    assert found["environment"] == {"PYTHONPATH": str(tmp_path / "modules"), "KEY": "value"}
    assert found["session"]
    assert found["term"]
    assert found["fds"] == [0, 1, 2]
    assert str(found["title"]).startswith(f"{sys.executable} -m child a b c")
    assert wait_for(lambda: guarded.poll()["one"].returncode == 7)
    assert (tmp_path / "one.log").stat().st_mode & 0o777 == 0o600


def test_forks_stop_restart_and_end_with_the_guard(guarded: GuardedProcesses, command: Command, tmp_path: Path) -> None:
    first = guarded.start(command("one", "stay"))
    told(tmp_path / "one.log")
    assert guarded.stop_child("one").returncode == -signal.SIGTERM
    second = guarded.restart("one")
    other = guarded.start(command("other", "stay"))
    told(tmp_path / "other.log")
    guarded.signal("other", signal.SIGKILL)
    assert wait_for(lambda: guarded.poll()["other"].returncode == -signal.SIGKILL)
    os.kill(guarded.guard_pid or 0, signal.SIGKILL)
    assert wait_until_gone([first, second, other]) == []


def test_neither_the_guard_nor_another_fork_holds_a_secret(
    guarded: GuardedProcesses, command: Command, tmp_path: Path
) -> None:
    guarded.start(command("trusted", "stay", KEY=SECRET))
    assert told(tmp_path / "trusted.log")["environment"]["KEY"] == SECRET  # type: ignore[index]
    other = guarded.start(command("other", "stay"))
    told(tmp_path / "other.log")
    assert not holds(guarded.guard_pid or 0, SECRET.encode())
    assert not holds(other, SECRET.encode())
    assert holds(guarded.poll()["trusted"].pid, SECRET.encode())


def test_a_fork_can_share_the_modules_of_the_service(modules: Path, command: Command, tmp_path: Path) -> None:
    with GuardedProcesses(preload=preload(modules, "shared", *PRELOADED)) as processes:
        processes.start(command("one"))
        assert told(tmp_path / "one.log")["shared"]


@pytest.mark.parametrize("name", ["broken", "busy", "open_file"])
def test_a_guard_that_cannot_fork_starts_new_processes(
    name: str, modules: Path, command: Command, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with GuardedProcesses(preload=preload(modules, "shared", name)) as processes:
        processes.start(command("one", "a"))
        found = told(tmp_path / "one.log")
        assert wait_for(lambda: processes.poll()["one"].returncode == 7)
    assert (found["shared"], found["argv"]) == (False, ["a"])
    explained = {"broken": "not today", "busy": "", "open_file": "opened a file"}[name]
    assert explained in capfd.readouterr().err


def holds(pid: int, text: bytes) -> bool:
    """Return True if the memory that a process can write to contains a text."""
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", 0) as memory:
        for line in maps:
            span, access = line.split()[:2]
            if not access.startswith("rw") or "[v" in line:
                continue
            begin, end = (int(part, 16) for part in span.split("-"))
            memory.seek(begin)
            try:
                if text in memory.read(end - begin):
                    return True
            except OSError:
                continue  # not in memory
    return False
