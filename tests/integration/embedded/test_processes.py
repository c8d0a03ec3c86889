"""The guard with any commands: what the parent sees, in which order they stop, and that nothing of them stays."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from speciate.embedded.errors import EmbeddedServerError
from speciate.embedded.processes import ChildCommand, GuardedProcesses

from .conftest import CHECKOUT, alive, descendants, wait_for, wait_until_gone

Command = Callable[..., ChildCommand]


@pytest.fixture
def shell(tmp_path: Path) -> Command:
    """Make a command of a shell script; its output goes to <name>.log."""

    def make(name: str, script: str, **options: object) -> ChildCommand:
        env = {"PATH": os.environ["PATH"]} | options.pop("env", {})
        return ChildCommand(name, ["sh", "-c", script], env, tmp_path / f"{name}.log", **options)

    return make


@pytest.fixture
def processes() -> Iterator[GuardedProcesses]:
    with GuardedProcesses() as guarded:
        yield guarded


def test_exits_are_seen(processes: GuardedProcesses, shell: Command) -> None:
    processes.start(shell("fails", "exit 3"))
    processes.start(shell("killed", "kill -KILL $$"))
    processes.start(shell("stays", "exec sleep 60"))
    assert wait_for(lambda: [processes.poll()[name].returncode for name in ("fails", "killed")] == [3, -9])
    assert processes.poll()["stays"].running


def test_parent_with_many_open_files(shell: Command) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], 2048), limits[1]))
    files = [os.open("/dev/null", os.O_RDONLY) for _ in range(1100)]
    try:
        with GuardedProcesses() as guarded:
            guarded.start(shell("stays", "exec sleep 60"))
            assert guarded.poll()["stays"].running
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_output_is_appended_to_a_private_log(processes: GuardedProcesses, shell: Command, tmp_path: Path) -> None:
    for _start in range(2):
        processes.start(shell("speaks", "echo out; echo err >&2"))
        assert wait_for(lambda: not processes.poll()["speaks"].running)
    assert (tmp_path / "speaks.log").read_text() == "out\nerr\n" * 2
    assert (tmp_path / "speaks.log").stat().st_mode & 0o777 == 0o600


def test_a_command_that_cannot_run_is_named(processes: GuardedProcesses, tmp_path: Path) -> None:
    with pytest.raises(EmbeddedServerError, match=r"nothing could not be started: .*no-such-program"):
        processes.start(ChildCommand("nothing", ["/no-such-program"], {}, tmp_path / "log"))
    assert "nothing" not in processes.poll()


def test_stop_is_in_reverse_order_with_each_ones_signal(
    processes: GuardedProcesses, shell: Command, tmp_path: Path
) -> None:
    order = tmp_path / "order"
    script = f"trap 'echo $NAME >> {order}; exit 0' $SIGNAL; echo up; while :; do sleep 0.01; done"
    for name, number in {"first": signal.SIGINT, "second": signal.SIGTERM, "third": signal.SIGQUIT}.items():
        env = {"NAME": name, "SIGNAL": number.name.removeprefix("SIG")}
        processes.start(shell(name, script, env=env, stop_signal=number, grace_s=60.0))
        assert wait_for((tmp_path / f"{name}.log").read_text)
    assert processes.stop()
    assert order.read_text().split() == ["third", "second", "first"]
    assert [status.returncode for status in processes.poll().values()] == [0, 0, 0]


def test_one_that_does_not_stop_is_killed_with_its_group(
    processes: GuardedProcesses, shell: Command, tmp_path: Path
) -> None:
    processes.start(shell("stubborn", "trap '' TERM; sleep 60 & echo up; while :; do sleep 1; done", grace_s=0.1))
    assert wait_for((tmp_path / "stubborn.log").read_text)
    assert wait_for(lambda: len(descendants(processes.guard_pid)) >= 3)  # the shell's own sleep comes last
    pids = descendants(processes.guard_pid)
    processes.stop()
    assert processes.poll()["stubborn"].returncode == -9
    assert wait_until_gone(pids) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a guard adopt orphans")
def test_orphans_in_sessions_of_their_own_end_too(shell: Command, tmp_path: Path) -> None:
    with GuardedProcesses() as processes:
        processes.start(shell("parent", "setsid sh -c 'echo $$; exec sleep 60' & exec sleep 60"))
        assert wait_for((tmp_path / "parent.log").read_text)
        orphan = int((tmp_path / "parent.log").read_text())
        processes.signal("parent", signal.SIGKILL)
        assert wait_for(lambda: not processes.poll()["parent"].running)
        assert alive(orphan)
    assert wait_until_gone([orphan]) == []


def test_kill_and_restart(processes: GuardedProcesses, shell: Command) -> None:
    first = processes.start(shell("server", "exec sleep 60"))
    processes.signal("server", signal.SIGKILL)
    assert wait_for(lambda: processes.poll()["server"].returncode == -9)
    second = processes.restart("server")
    third = processes.restart("server")
    assert len({first, second, third}) == 3
    assert [alive(pid) for pid in (first, second, third)] == [False, False, True]


def test_secrets_travel_in_the_environment_only(processes: GuardedProcesses, shell: Command, tmp_path: Path) -> None:
    command = shell("worker", "echo $SECRET; exec sleep 60", env={"SECRET": "hunter2"})
    processes.start(command)
    assert wait_for((tmp_path / "worker.log").read_text)
    lines = [Path(f"/proc/{pid}/cmdline").read_text() for pid in (processes.guard_pid, processes.poll()["worker"].pid)]
    assert "hunter2" not in "".join(lines) + repr(command)
    assert (tmp_path / "worker.log").read_text() == "hunter2\n"


def test_descriptors_are_inherited_only_where_asked(shell: Command, tmp_path: Path) -> None:
    script = 'ls /proc/$$/fd | while read fd; do readlink "/proc/$$/fd/$fd"; done; echo done'
    kept, other = tmp_path / "kept", tmp_path / "other"
    with kept.open("w") as keep, other.open("w"), GuardedProcesses(inherit=[keep.fileno()]) as processes:
        processes.start(shell("lists", script))
        assert wait_for(lambda: not processes.poll()["lists"].running)
    seen = (tmp_path / "lists.log").read_text()
    assert str(kept) in seen
    assert str(other) not in seen


def test_directories_are_removed_at_the_end(shell: Command, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    runtime = tmp_path / "runtime"
    (runtime / "deep").mkdir(parents=True)
    (runtime / "deep" / "socket").touch()
    (runtime / "link").symlink_to(outside)
    with GuardedProcesses(remove=[runtime]) as processes:
        processes.start(shell("any", "exec sleep 60"))
    assert not runtime.exists()
    assert (outside / "file").exists()


@pytest.mark.fault
def test_kill_9_of_the_guard_is_said_and_ends_the_children(processes: GuardedProcesses, shell: Command) -> None:
    pid = processes.start(shell("server", "exec sleep 60"))
    os.kill(processes.guard_pid, signal.SIGKILL)
    assert wait_until_gone([pid]) == []
    with pytest.raises(EmbeddedServerError, match="has ended"):
        processes.start(shell("other", "exec sleep 60"))
    assert not processes.stop()


@pytest.mark.fault
def test_a_fork_that_holds_the_pipe_does_not_keep_the_children(tmp_path: Path) -> None:
    script = """
import os, sys, time
from pathlib import Path
from speciate.embedded.processes import ChildCommand, GuardedProcesses
processes = GuardedProcesses()
child = processes.start(ChildCommand("server", ["sleep", "60"], dict(os.environ), Path(sys.argv[1])))
if (fork := os.fork()) == 0:
    processes.stop()  # not ours to stop
    time.sleep(60)
print(processes.guard_pid, child, fork, flush=True)
time.sleep(60)
"""
    env = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    with subprocess.Popen([sys.executable, "-c", script, tmp_path / "log"], stdout=subprocess.PIPE, env=env) as parent:
        guard, child, fork = map(int, parent.stdout.readline().split())
        try:
            assert alive(child)
            parent.kill()
            assert wait_until_gone([guard, child]) == []
            assert alive(fork)
        finally:
            os.kill(fork, signal.SIGKILL)
