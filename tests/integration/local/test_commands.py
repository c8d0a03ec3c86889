"""Commands without a service: interrupted, killed, two at once, and beside a service on the same data directory."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.fault

# A shell starts background jobs with SIGINT ignored, and a child inherits that.
MAIN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from speciate.cli import main; main()"
LIMIT_S = 180.0
PAUSED, INTERRUPTED = 10, 130
COMPLETED = {0, 9}


@dataclass
class Commands:
    """Runs ``speciate`` on one data directory."""

    data_dir: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *arguments: object) -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SPECIATE_")}
        environment |= {"SPECIATE_DATA_DIR": str(self.data_dir), "SPECIATE_EVALUATE_SLOTS": "2"}
        argv = [sys.executable, "-c", MAIN, *map(str, arguments)]
        log = (self.data_dir / f"command-{len(self.started)}.log").open("w")
        with log:
            process = subprocess.Popen(
                argv, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, cwd=self.data_dir
            )
        self.started.append(process)
        return process

    def finish(self, process: subprocess.Popen[str]) -> tuple[int, str, str]:
        """Return exit code, output and notes of a command, after its end."""
        out, _ = process.communicate(timeout=LIMIT_S)
        log = self.data_dir / f"command-{self.started.index(process)}.log"
        return process.returncode, out, log.read_text()

    def run(self, *arguments: object) -> tuple[int, str, str]:
        return self.finish(self.start(*arguments))

    def search(self, evaluations: int) -> subprocess.Popen[str]:
        """Start a run, and wait for its first candidates."""
        process = self.start("run", "circle-packing-26", "-p", "mutator", "-b", evaluations, "--json")
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event.get("kind") == "batch.evaluated" and event["seq"] > 15:
                return process
        raise AssertionError(self.finish(process))

    def runs(self) -> list[dict[str, Any]]:
        code, out, notes = self.run("runs", "list", "--json")
        assert code == 0, notes
        return [json.loads(line) for line in out.splitlines()]

    def candidates(self, run_id: str) -> list[int]:
        code, out, notes = self.run("runs", "export", run_id)
        assert code == 0, notes
        return [json.loads(line)["number"] for line in out.splitlines()]

    def has_server(self) -> bool:
        return (self.data_dir / "postgres" / "postmaster.pid").exists()


@pytest.fixture
def commands() -> Iterator[Commands]:
    data_dir = Path(tempfile.mkdtemp(prefix="speciate-test-"))
    data_dir.chmod(0o711)  # PostgreSQL's account passes through
    made = Commands(data_dir)
    try:
        code, _, notes = made.run("problems", "add", "circle-packing-26")
        assert code == 0, notes
        yield made
    finally:
        for process in made.started:
            if process.poll() is None:
                process.kill()
                process.communicate()
        wait(lambda: not made.has_server())
        shutil.rmtree(data_dir)


def wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_interrupted_run_is_paused_and_resumed(commands: Commands) -> None:
    process = commands.search(60)
    process.send_signal(signal.SIGINT)
    interrupted = time.monotonic()
    code, _, notes = commands.finish(process)
    assert time.monotonic() - interrupted < 20
    assert code == INTERRUPTED
    assert not commands.has_server()
    (run,) = commands.runs()
    assert (run["state"], run["reason"]) == ("paused", "interrupted")
    assert f"speciate runs resume {run['id']}" in notes
    code, _, notes = commands.run("runs", "resume", run["id"], "--json")
    assert code in COMPLETED, notes
    assert commands.candidates(run["id"]) == [*range(1, 61)]


def test_a_killed_run_waits_for_its_resumption_and_counts_nothing_twice(commands: Commands) -> None:
    process = commands.search(60)
    process.kill()
    process.communicate()
    wait(lambda: not commands.has_server())
    (run,) = commands.runs()
    assert (run["state"], run["reason"]) == ("paused", "its command was killed")
    assert 0 < run["spent"]["evaluations"] < 60
    code, _, notes = commands.run("runs", "resume", run["id"], "--json")
    assert code in COMPLETED, notes
    (run,) = commands.runs()
    assert (run["spent"]["evaluations"], run["spent"]["reserved_evaluations"]) == (60, 0)
    assert commands.candidates(run["id"]) == [*range(1, 61)]
    assert not [*(commands.data_dir / "local").iterdir()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_two_commands_share_a_data_directory_whichever_ends_first(commands: Commands, number: signal.Signals) -> None:
    first, second = commands.search(400), commands.search(60)
    first.send_signal(number)
    first.communicate()
    code, _, notes = commands.finish(second)
    assert code in COMPLETED, notes
    assert not commands.has_server()
    assert sorted(run["state"] for run in commands.runs()) == ["completed", "paused"]


def test_a_proposal_of_another_command_is_evaluated_by_the_one_that_executes_the_run(commands: Commands) -> None:
    process = commands.search(400)
    (run,) = commands.runs()
    (commands.data_dir / "p.py").write_text("raise ValueError\n")
    _, out, notes = commands.run("runs", "propose", run["id"], "p.py", "--json")
    assert json.loads(out)["failure"] == "crashed", notes
    assert commands.runs()[0]["state"] == "running"
    assert process.poll() is None


def test_a_service_does_not_start_beside_a_command(commands: Commands) -> None:
    process = commands.search(400)
    code, _, notes = commands.run("up", "--port", 0)
    assert code != 0
    assert f"is in use by a command that runs without a service, process {process.pid}. Wait until it ends" in notes
    process.terminate()
    assert commands.finish(process)[0] == 128 + signal.SIGTERM
    assert [run["state"] for run in commands.runs()] == ["paused"]


def test_doctor_starts_the_database_to_check_the_secret_key(commands: Commands) -> None:
    commands.run("policies", "list")
    code, out, notes = commands.run("doctor", "--json")
    assert code == 0, notes
    found = {each["name"]: each["detail"] for each in json.loads(out)["checks"]}
    assert found["secret key"] == "no sealed secrets yet"
    assert not commands.has_server()
