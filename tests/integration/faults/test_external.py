"""External evaluators are killed at random, and Valkey is out of memory: nothing is lost or counted twice."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from speciate.domain.budget import Budget
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.domain.run import RunSpec
from speciate.problems.loader import bundled, load_problem
from tests.integration.faults.conftest import Service

pytestmark = [pytest.mark.fault, pytest.mark.servers]

BUDGET = 120

PROBLEM = Problem.model_validate(
    {
        "slug": "outside",
        "title": "Length of a text",
        "kind": "evaluator",
        "evaluation": "external",
        "seed_program": "def f(x):\n    return x + 1\n",
        "objectives": [{"name": "bytes", "range": [0, 1e6]}],
        "targets": [{"name": "never", "rule": "bytes >= 1e6", "unlock": True}],
    }
)


def test_evaluators_die_and_every_candidate_is_evaluated_once(service: Service, tmp_path: Path) -> None:
    script = tmp_path / "measure.sh"
    script.write_text('#!/bin/sh\nsleep 0.05\necho "{\\"bytes\\": $(wc -c < "$1")}"\n')
    script.chmod(0o755)
    environment = {**os.environ, "SPECIATE_URL": service.stack.url}

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "speciate.cli", "evaluate", "--lease", "3", "--slots", "8", "--", str(script)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    policy = Policy.model_validate({"slug": "mutator", "kind": "program_mutator"})
    spec = RunSpec(budget=Budget(evaluations=BUDGET), lanes=8, batch=12, reuse_results=False)
    run_id = service.begin(PROBLEM, policy, spec)
    rng, workers = random.Random(3), [start() for _ in range(3)]
    try:
        deadline = time.monotonic() + 90
        while not service.stores.runs.get(run_id).state.ended:
            assert time.monotonic() < deadline, service.stores.runs.get(run_id)
            time.sleep(rng.uniform(0.5, 1.0))
            victim = rng.randrange(len(workers))
            workers[victim].send_signal(signal.SIGKILL)
            workers[victim].wait()
            workers[victim] = start()
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait(30)
    service.check_complete(run_id, BUDGET)
    rows = service.query(
        "SELECT c.rewards, c.failure_detail, octet_length(c.program) FROM candidates c WHERE run_id = :id"
        " AND duplicate_of IS NULL",
        id=run_id,
    )
    assert [row for row in rows if row[1] is not None or row[0] != [float(row[2])]] == []
    assert len(rows) > 10


def test_workers_survive_a_valkey_that_is_out_of_memory(service: Service) -> None:
    policy = Policy.model_validate({"slug": "mutator", "kind": "program_mutator"})
    spec = RunSpec(budget=Budget(evaluations=400), lanes=16, batch=2)
    before = {name: status.pid for name, status in service.stack.poll().items()}
    run_id = service.begin(load_problem(bundled()["sorting-network-8"]), policy, spec)
    service.wait(run_id, lambda run: run.spent.evaluations >= 10)
    try:
        for _ in range(4):  # messages that were sent just before find no memory for their receipt
            service.stores.redis.config_set("maxmemory", 1)
            time.sleep(0.8)
            service.stores.redis.config_set("maxmemory", 0)
            time.sleep(0.3)
        assert {name: (s.running, s.pid) for name, s in service.stack.poll().items()} == {
            name: (True, pid) for name, pid in before.items()
        }
    finally:
        service.stores.redis.config_set("maxmemory", 0)
    service.wait_for_end(run_id)
    service.check_complete(run_id, 400)
    assert {name: status.pid for name, status in service.stack.poll().items()} == before
