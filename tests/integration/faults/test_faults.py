"""Candidates that kill, and steering in flight; what kills processes of ours is in test_storm and test_rolling."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from uuid import UUID

import pytest
import sqlalchemy as sa

from speciate.domain.policy import Policy
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.run import RunSpec
from speciate.domain.webhook import Webhook
from tests.integration.faults.conftest import Service
from tests.support.runs import toy_problem
from tests.unit.egress.test_delivery import Receiver, receiver

__all__ = ["receiver"]

pytestmark = [pytest.mark.fault, pytest.mark.servers]

BUDGET = 240
# Each evaluation takes a while, so that something is in flight whenever a part is killed.
_EVALUATOR = """
import re, time
def score(text, context):
    time.sleep(0.04)
    x, y = (float(value) for value in re.findall(r"= *([0-9.]+)", text))
    return {"x": x, "y": y}
"""


def _problem() -> Problem:
    return toy_problem().model_copy(
        update={"kind": ProblemKind.DATA, "evaluator": _EVALUATOR, "slug": "slow-toy", "seed_program": "x = 1\ny = 9\n"}
    )


def _policy() -> Policy:
    return Policy(slug="numbers", kind="scripted", options={"template": "x = 1.{number}\ny = 3\n"})


def _begin(service: Service, budget: int = BUDGET) -> UUID:
    spec = RunSpec.model_validate({"budget": {"evaluations": budget}, "lanes": 4, "batch": 16, "strategy": "best_of_n"})
    return service.begin(_problem(), _policy(), spec)


def test_killers_never_harm_others(service: Service) -> None:
    good = "def solve(a, b):\n    return a + b  # {i}\n"
    killers = [
        "import os, signal\ndef solve(a, b):\n    os.kill(os.getpid(), signal.SIGKILL)\n",
        "def solve(a, b):\n    while True: pass\n",
        "import os\ndef solve(a, b):\n    os._exit(0)\n",
        "import sys\nsys.exit(3)\n",
        "def solve(a, b):\n    return [0] * 10**10\n",
    ]
    programs = [good.replace("{i}", str(i)) for i in range(15)] + killers
    problem = Problem.model_validate(
        {
            "slug": "sum",
            "title": "Add two numbers",
            "kind": "cases",
            "objectives": [{"name": "passed"}],
            "targets": [{"name": "all", "rule": "passed >= 1", "unlock": True}],
            "cases": [{"input": [i, i], "expected": 2 * i} for i in range(3)],
            "limits": {"wall_s": 1.0, "cpu_s": 1.0},
        }
    )
    completions = [f"```python\n{program}```" for program in programs]
    policy = Policy(slug="killers", kind="scripted", options={"completions": completions, "order": "seed"})
    spec = RunSpec.model_validate({"budget": {"evaluations": 60}, "lanes": 2, "strategy": "best_of_n"})
    run_id = service.begin(problem, policy, spec)
    run = service.wait_for_end(run_id)
    service.check_complete(run_id, 60)
    outcomes = {c.program: c.failure for c in service.stores.queries.export(run_id)}
    for program, failure in outcomes.items():
        assert (failure is None) == program.startswith("def solve(a, b):\n    return a + b"), (program, failure)
    assert run.unlocked


def test_pause_resume_and_cancel_in_flight(service: Service) -> None:
    run_id = _begin(service)
    service.wait(run_id, lambda run: run.spent.evaluations >= BUDGET // 4)
    service.stores.signals.committed(service.stores.runs.pause(run_id, "a look around"))
    # What is in flight is booked; then nothing moves until the run is resumed.
    service.seconds_until_done(service.leased(run_id, "evaluate") | service.leased(run_id, "generate"))
    before = service.stores.runs.get(run_id).spent.evaluations
    time.sleep(1.5)
    paused = service.stores.runs.get(run_id)
    assert (paused.state.value, paused.reason, paused.spent.evaluations) == ("paused", "a look around", before)
    service.stores.signals.committed(service.stores.runs.resume(run_id))
    service.wait(run_id, lambda run: run.spent.evaluations > before)
    service.stores.signals.committed(service.stores.runs.cancel(run_id))
    cancelled = service.stores.runs.get(run_id)
    time.sleep(1.5)
    later = service.stores.runs.get(run_id)
    assert (later.state.value, later.spent.evaluations) == ("cancelled", cancelled.spent.evaluations)
    assert later.spent.reserved_evaluations == 0


def test_webhooks_are_delivered_when_their_sender_is_killed(service: Service, receiver: Receiver) -> None:
    """A hanging receiver delays no run; another worker takes over the delivery of a killed one."""
    webhook = service.stores.webhooks.add(Webhook(url=receiver.url))
    receiver.drip_s = 0.1
    run_id = _begin(service, 48)
    service.wait_for_end(run_id)
    _wait(lambda: receiver.seen)
    os.kill(service.stack.poll()["control"].pid, signal.SIGKILL)
    receiver.drip_s = 0.0
    with service.stores.engine.begin() as connection:  # as if the sender's lease had run out
        connection.execute(sa.text("UPDATE webhook_deliveries SET lease_until = now() WHERE state = 'pending'"))
    _wait(lambda: not service.stack.restart_ended() and _states(service, webhook.id) == {"delivered"})
    told = service.stores.webhooks.deliveries(webhook.id).items
    assert [d.event.value for d in told].count("run.finished") == 1
    assert len({json.loads(body)["id"] for _, body in receiver.seen}) == len(told)
    service.stores.webhooks.remove(webhook.id)


def _states(service: Service, webhook_id: UUID) -> set[str]:
    return {delivery.state.value for delivery in service.stores.webhooks.deliveries(webhook_id).items}


def _wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.1)
