"""Test that a campaign survives killed processes: it spends the same as an undisturbed one."""

from __future__ import annotations

import os
import signal
import time
from typing import Any
from uuid import UUID

import pytest

from speciate.domain.campaign import Campaign
from speciate.domain.declaration import DeclarationState
from speciate.domain.policy import Policy
from speciate.domain.problem import ProblemKind
from speciate.runs.declarations import pin_campaign
from tests.integration.faults.conftest import LIMIT_S, Service
from tests.support.runs import toy_problem

pytestmark = [pytest.mark.fault, pytest.mark.servers]

_EVALUATOR = """
import re
def score(text, context):
    x, y = (float(value) for value in re.findall(r"= *([0-9.]+)", text))
    return {"x": x, "y": y}
"""
_RULES = {"soon": "x >= 8", "late": "x >= 8 and y <= 0", "never": "x >= 10"}


def _declare(service: Service, slug: str) -> UUID:
    for name, rule in _RULES.items():
        half, both = toy_problem().targets
        changes: dict[str, Any] = {"kind": ProblemKind.DATA, "evaluator": _EVALUATOR, "slug": f"campaign-{name}"}
        changes["targets"] = (half, both.model_copy(update={"rule": rule}))
        service.stores.catalog.add_problem(toy_problem().model_copy(update=changes))
    completions = [f"x = {i % 10}\ny = {i % 7}\n" for i in range(70)]
    policy = Policy(slug="guesser", kind="scripted", options={"completions": completions, "order": "seed"})
    service.stores.catalog.add_policy(policy)
    declared = Campaign.model_validate(
        {
            "slug": slug,
            "problems": [f"campaign-{name}" for name in _RULES],
            "policy": "guesser",
            "strategy": "best_of_n",
            "batch": 4,
            "samples_per_prompt": 1,
            "evaluations": 203,
            "slice": 10,
            "parallel": 2,
        }
    )
    campaign_id, _ = service.stores.campaigns.create(pin_campaign(declared, service.stores.catalog), request_digest="")
    return campaign_id


def _wait(service: Service, campaign_id: UUID, spent: int) -> None:
    deadline = time.monotonic() + 3 * LIMIT_S
    while time.monotonic() < deadline:
        service.stack.restart_ended()
        record = service.stores.campaigns.get(campaign_id)
        if record.spent >= spent and (spent < 203 or record.state is DeclarationState.COMPLETED):
            return
        time.sleep(0.05)
    raise AssertionError(f"not reached: {record.spent} of {spent}, {record.state}")


def _decisions(service: Service, campaign_id: UUID) -> list[tuple[object, ...]]:
    made = service.stores.campaigns.decisions(campaign_id, limit=500).items
    return [(s.ord, s.problem, s.evaluations, s.gap, s.spent, s.reached, s.closed) for s in made]


def test_decisions_and_spending_survive_kills(service: Service) -> None:
    calm = _declare(service, "calm")
    _wait(service, calm, 203)
    disturbed = _declare(service, "disturbed")
    for spent, part in ((5, "control"), (50, "evaluate"), (90, "control"), (120, "generate"), (150, "control")):
        _wait(service, disturbed, spent)
        os.kill(service.stack.poll()[part].pid, signal.SIGKILL)
    _wait(service, disturbed, 203)
    assert _decisions(service, disturbed) == _decisions(service, calm)
    runs = (
        "SELECT count(*), sum(p.evaluations) FROM campaign_runs r JOIN run_progress p ON p.run_id = r.run_id"
        " WHERE campaign_id = :id"
    )
    assert service.query(runs, id=disturbed) == [(3, 203)]
