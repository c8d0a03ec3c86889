"""`speciate up` as a person runs it: killed, started again at once, and started twice."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from speciate.cli.errors import ExitCode
from speciate.client import Client, RunHandle
from speciate.domain.errors import UnavailableError
from speciate.domain.policy import Policy
from tests.support.runs import scored_toy_problem

pytestmark = [pytest.mark.fault, pytest.mark.servers]

LIMIT_S = 90.0
BUDGET = 400


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(30)


def _up(started: list[subprocess.Popen[bytes]], home: Path, port: int, lease_s: str = "3") -> subprocess.Popen[bytes]:
    command = [Path(sys.executable).with_name("speciate"), "up", "--port", str(port), "--data-dir", home / "data"]
    environment = {**os.environ, "SPECIATE_LEASE_S": lease_s}
    with (home / f"up-{len(started)}.log").open("wb") as log:
        started.append(subprocess.Popen(command, stderr=log, env=environment))
    return started[-1]


def _wait_until_ready(client: Client) -> None:
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        try:
            client.ready()
        except UnavailableError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the service is not ready")


def _wait_until_announced(home: Path) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not (home / "data" / "running.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def _wait_for_end(run: RunHandle) -> None:
    """Wait through the last moments of the first service and the start of the second."""
    deadline = time.monotonic() + LIMIT_S
    while time.monotonic() < deadline:
        with suppress(UnavailableError):
            if run.refresh().state.ended:
                return
        time.sleep(0.1)
    raise AssertionError(f"the run did not end: {run}")


def test_a_killed_service_is_started_again_at_once_and_its_run_goes_on(
    started: list[subprocess.Popen[bytes]], open_dir: Path, port: int
) -> None:
    first = _up(started, open_dir, port)
    with Client(f"http://127.0.0.1:{port}") as client:
        _wait_until_ready(client)
        problem = client.problems.add(scored_toy_problem())
        template = "```python\nx = 1.{number}\ny = 3\n```"
        policy = client.policies.add(Policy(slug="numbers", kind="scripted", options={"template": template}))
        run = client.runs.create(problem.id, policy.id, budget=BUDGET, strategy="best_of_n")
        while run.refresh().spent.evaluations < BUDGET // 8:
            time.sleep(0.05)
        first.kill()
        first.wait()
        second = _up(started, open_dir, port)
        _wait_for_end(run)
        assert (run.state.value, run.record.spent.evaluations) == ("completed", BUDGET)
        assert sorted(candidate.number for candidate in run.export()) == list(range(1, BUDGET + 1))
        second.send_signal(signal.SIGINT)
        assert second.wait(30) == 0


def test_a_second_service_on_one_data_directory_names_the_first(
    started: list[subprocess.Popen[bytes]], open_dir: Path, port: int
) -> None:
    first = _up(started, open_dir, port)
    with Client(f"http://127.0.0.1:{port}") as client:
        _wait_until_ready(client)
    _wait_until_announced(open_dir)
    assert _up(started, open_dir, port).wait(60) == 0
    assert f"already up at http://127.0.0.1:{port} (process {first.pid})" in (open_dir / "up-1.log").read_text()
    assert _up(started, open_dir, port + 1).wait(60) == 6
    said = (open_dir / "up-2.log").read_text()
    assert f"process {first.pid}" in said
    assert "--data-dir" in said


def test_a_port_in_use_leaves_no_cluster_behind(
    started: list[subprocess.Popen[bytes]], open_dir: Path, port: int
) -> None:
    with socket.create_server(("127.0.0.1", port)):
        assert _up(started, open_dir, port).wait(60) == 6
    assert f"127.0.0.1:{port}" in (open_dir / "up-0.log").read_text()
    assert not list((open_dir / "data").rglob("PG_VERSION"))


def test_a_lost_guard_ends_the_service_and_a_killed_service_leaves_a_directory_that_can_be_backed_up(
    started: list[subprocess.Popen[bytes]], open_dir: Path, port: int
) -> None:
    first = _up(started, open_dir, port)
    _wait_until_announced(open_dir)
    guards = subprocess.check_output(["pgrep", "-P", str(first.pid), "-f", "guard.py"]).split()
    os.kill(int(guards[-1]), signal.SIGKILL)
    assert first.wait(60) == ExitCode.UNREACHABLE
    assert re.search(r"error: the guard process \d+ has ended", (open_dir / "up-0.log").read_text())
    second = _up(started, open_dir, port)
    _wait_until_announced(open_dir)
    second.kill()
    second.wait()
    command = [Path(sys.executable).with_name("speciate"), "backup", "b.dump", "--data-dir", "data"]
    subprocess.run(command, cwd=open_dir, check=True)
