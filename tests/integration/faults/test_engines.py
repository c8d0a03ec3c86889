"""Engines that die, flood, cheat or never end: budgets hold, nothing counts twice, and each is named."""

from __future__ import annotations

import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from speciate.client import Client
from speciate.domain.policy import Policy
from speciate.domain.run import RunSpec
from speciate.engines.installation import installed
from speciate.engines.runner import EngineRunner
from speciate.schema.runs import RunRecord
from tests.integration.faults.conftest import Service
from tests.support.openai_endpoint import Reply, serve
from tests.support.runs import scored_toy_problem

pytestmark = [pytest.mark.fault, pytest.mark.servers]

BUDGET = 30

ASK = """
import json, os, time, urllib.error, urllib.request

def send(body, url=os.environ["SPECIATE_EVALUATOR_URL"]):
    request = urllib.request.Request(url, json.dumps(body).encode())
    try:
        return json.load(urllib.request.urlopen(request))
    except urllib.error.HTTPError as error:
        return error.code

run = json.load(open(os.environ["SPECIATE_ENGINE_RUN"]))
"""


@contextmanager
def model(failing: range = range(0)) -> Iterator[Policy]:
    """A policy whose every answer is another program; requests with these numbers fail."""
    numbers = itertools.count()

    def answer(body: dict[str, object]) -> Reply:
        number = next(numbers)
        if number in failing:
            return 503, {}, b"the model is loading"
        text = f"Here it is:\n```python\nx = {number % 1000 / 100}\ny = 1\n```\n"
        message = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        return 200, {}, json.dumps({"choices": [message], "usage": usage}).encode()

    with serve() as endpoint:
        endpoint.routes["/chat/completions"] = answer
        yield Policy(slug="remote-model", kind="openai_compatible", base_url=endpoint.url, model="m",
                     options={"max_retries": 1, "outage_s": 0})  # fmt: skip


def begin(service: Service, policy: Policy, engine: str, evaluations: int = BUDGET) -> UUID:
    spec = RunSpec.model_validate({"budget": {"evaluations": evaluations}, "engine": engine})
    return service.begin(scored_toy_problem(), policy, spec)


def start(service: Service, data_dir: Path, *arguments: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "speciate.cli", "engines", "run", "--data-dir", str(data_dir), *arguments]
    environment = {**os.environ, "SPECIATE_URL": service.stack.url, "PYTHONFAULTHANDLER": "1"}
    with (data_dir / "runner.stderr").open("ab") as errors:
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors)


def end(runner: subprocess.Popen[bytes], data_dir: Path) -> None:
    """Stop a runner, which may wait for one response first; if it stays, fail with the stacks of its threads."""
    runner.terminate()
    try:
        runner.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        runner.send_signal(signal.SIGABRT)
        runner.communicate()
        pytest.fail((data_dir / "runner.stderr").read_text()[-8000:])


def play(service: Service, tmp_path: Path, run_id: UUID, source: str, *arguments: str) -> tuple[RunRecord, str]:
    """Run an engine that is this script, and return the ended run and what the runner printed."""
    script = tmp_path / "engine.py"
    script.write_text(ASK + source)
    runner = start(service, tmp_path, "mine", "--command", f"{sys.executable} {script}", "--run", str(run_id),
                   "--idle", "0", *arguments)  # fmt: skip
    printed, _ = runner.communicate(timeout=120)
    assert runner.returncode == 0
    return service.wait_for_end(run_id), printed.decode()


def sessions(service: Service, run_id: UUID) -> list[tuple[object, ...]]:
    """State and attempt of the run's sessions, and whether the engine used processor time."""
    statement = "SELECT state, attempt, processor_s > 0 FROM engine_sessions WHERE run_id = :id ORDER BY id"
    return service.query(statement, id=run_id)


@pytest.mark.parametrize("engine", ["independent-sampling", "sequential-sampling"])
def test_a_baseline_spends_its_budget_and_no_more(service: Service, tmp_path: Path, engine: str) -> None:
    with model() as policy:
        run_id = begin(service, policy, engine)
        runner = start(service, tmp_path, engine, "--run", str(run_id), "--idle", "0", "--json")
        printed, _ = runner.communicate(timeout=120)
    assert json.loads(printed)["outcome"] == "finished"
    service.check_complete(run_id, BUDGET)
    assert sessions(service, run_id) == [("finished", 1, True)]
    assert service.stores.runs.get(run_id).spent.tokens >= 10 * (BUDGET - 1)


def test_an_engine_that_is_killed_goes_on_and_nothing_counts_twice(service: Service, tmp_path: Path) -> None:
    rng = random.Random(5)
    with model() as policy:
        run_id = begin(service, policy, "sequential-sampling", 120)  # one runner may end 60 before it is stopped
        deadline = time.monotonic() + 120
        kills = 0
        while not (run := service.stores.runs.get(run_id)).state.ended:
            runner = start(service, tmp_path, "sequential-sampling", "--run", str(run_id), "--idle", "30")
            goal = run.spent.evaluations + rng.randint(5, 20)
            while (run := service.stores.runs.get(run_id)).spent.evaluations < goal and not run.state.ended:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            # A runner that is stopped gives the run back at once, which counts as no attempt.
            end(runner, tmp_path)
            kills += 1
    assert kills > 1
    service.check_complete(run_id, 120)


def test_a_run_whose_runner_is_killed_fails_after_three_attempts(service: Service, tmp_path: Path) -> None:
    script = tmp_path / "engine.py"
    script.write_text(ASK + "send({'program': f'x = {run[\"attempt\"]}\\ny = 1'})\ntime.sleep(600)\n")
    with model() as policy:
        run_id = begin(service, policy, "mine")
        code = f"""
from pathlib import Path
from speciate.client import Client
from speciate.engines.installation import from_command
from speciate.engines.runner import EngineRunner
engine = from_command("{sys.executable} {script}")
EngineRunner(Client("{service.stack.url}"), {{"mine": engine}}, Path("{tmp_path}"), lease_s=2.0).run_until_idle()
"""
        deadline = time.monotonic() + 120
        for attempt in range(1, 4):
            runner = subprocess.Popen([sys.executable, "-c", code])
            while service.stores.runs.get(run_id).spent.evaluations < 1 + attempt:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            runner.kill()
            runner.wait()
        runner = start(service, tmp_path, "mine", "--command", "sleep 600", "--run", str(run_id), "--idle", "10")
        runner.communicate(timeout=60)
    run = service.stores.runs.get(run_id)
    assert run.state.value == "failed"
    assert run.spent.evaluations == 4


def test_a_paused_run_stops_its_engine_which_goes_on_later(service: Service, tmp_path: Path) -> None:
    engine = installed("sequential-sampling", tmp_path)
    assert engine is not None
    with model() as policy, Client(service.stack.url) as client, ThreadPoolExecutor(1) as pool:
        run_id = begin(service, policy, "sequential-sampling", 40)
        runner = EngineRunner(client, {"sequential-sampling": engine}, tmp_path, run=str(run_id), lease_s=1.5, idle_s=3)
        done = pool.submit(runner.run_until_idle)
        service.wait(run_id, lambda run: run.spent.evaluations > 5)
        service.stores.signals.committed(service.stores.runs.pause(run_id))
        done.result(timeout=60)
        paused = service.stores.runs.get(run_id).spent.evaluations
        assert sessions(service, run_id) == [("released", 1, True)]
        service.stores.signals.committed(service.stores.runs.resume(run_id))
        runner.run_until_idle()
    assert paused < 40
    service.check_complete(run_id, 40)
    assert sessions(service, run_id)[1:] == [("finished", 1, True)]


def test_an_engine_survives_a_model_that_fails_for_a_while(service: Service, tmp_path: Path) -> None:
    engine = installed("independent-sampling", tmp_path)
    assert engine is not None
    with model(failing=range(4, 12)) as policy, Client(service.stack.url) as client:
        run_id = begin(service, policy, "independent-sampling", 10)
        EngineRunner(client, {"independent-sampling": engine}, tmp_path, run=str(run_id), idle_s=0).run_until_idle()
    service.check_complete(run_id, 10)


BAD = {
    "sends scores": """
assert [send({"score": 100.0}), send({"program": "x = 9", "score": 100.0})] == [422, 422]
""",
    "asks beyond its budget": """
results = [send({"program": f"x = {i / 100}\\ny = 1"}) for i in range(100)]
assert results.count(410) == 100 - 29, results
""",
    "never ends": """
while True:
    send({"program": f"x = {time.time() % 9}\\ny = 1"})
""",
    "sends one program again and again": """
results = [send({"program": "x = 5\\ny = 1"}) for _ in range(1000)]
assert all(result == 410 or result["score"] == results[0]["score"] for result in results), results
""",
    "floods": """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(200) as pool:
    sent = [pool.submit(send, {"program": f"x = {i / 100}\\ny = 1"}) for i in range(200)]
assert any(each.result() == 429 for each in sent)
""",
    "changes its budget": """
for path in (os.environ["SPECIATE_ENGINE_RUN"], run["initial"]):
    try:
        open(path, "w")
    except PermissionError:
        continue
    raise SystemExit("changed")
""",
    "crashes": "send({'program': 'x = 1'})\nraise RuntimeError('broken engine')",
    "runs too long": "time.sleep(600)",
}
OUTCOMES = {
    "never ends": ("completed", "after its budget was spent"),
    "crashes": ("failed", "broken engine"),
    "runs too long": ("failed", "ran for more than 3 s"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_engine_is_contained_and_named(service: Service, tmp_path: Path, case: str) -> None:
    state, named = OUTCOMES.get(case, ("completed", "finished"))
    limit = "3" if case == "runs too long" else "60"
    with model() as policy:
        run, printed = play(service, tmp_path, begin(service, policy, "mine"), BAD[case], "--limit", limit)
    assert (run.state.value, named in printed) == (state, True), (run.reason, printed)
    assert run.spent.evaluations <= BUDGET
    assert run.spent.reserved_evaluations == 0
