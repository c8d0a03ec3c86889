"""Test that a tournament survives killed processes: it reports the same as an undisturbed one."""

from __future__ import annotations

import os
import signal
import time
from typing import Any
from uuid import UUID

import pytest

from speciate.domain.declaration import DeclarationState
from speciate.domain.policy import Policy
from speciate.domain.problem import ProblemKind
from speciate.domain.tournament import Tournament
from speciate.runs.declarations import pin_tournament
from tests.integration.faults.conftest import LIMIT_S, Service
from tests.support.runs import toy_problem

pytestmark = [pytest.mark.fault, pytest.mark.servers]

_EVALUATOR = """
import re
def score(text, context):
    x, y = (float(value) for value in re.findall(r"= *([0-9.]+)", text))
    return {"x": x, "y": y}
"""


def _declare(service: Service, slug: str) -> UUID:
    for name in ("one", "two", "three"):
        changes = {"kind": ProblemKind.DATA, "evaluator": _EVALUATOR, "slug": f"duel-{name}"}
        service.stores.catalog.add_problem(toy_problem().model_copy(update=changes))
    for name, y in (("low", 9), ("high", 2)):
        completions = [f"x = {x}\ny = {y}\n" for x in range(10)]
        options = {"completions": completions, "order": "seed"}
        service.stores.catalog.add_policy(Policy(slug=name, kind="scripted", options=options))
    entrant = {"strategy": "best_of_n", "batch": 2, "samples_per_prompt": 1}
    declared = Tournament.model_validate(
        {
            "slug": slug,
            "problems": ["duel-one", "duel-two", "duel-three"],
            "entrants": [{"name": name, "policy": name, **entrant} for name in ("low", "high")],
            "baseline": "low",
            "seeds": list(range(8)),
            "budget": {"evaluations": 8},
        }
    )
    tournament_id, _ = service.stores.tournaments.create(
        pin_tournament(declared, service.stores.catalog), request_digest=""
    )
    return tournament_id


def _wait(service: Service, tournament_id: UUID, ended: int) -> None:
    deadline = time.monotonic() + 2 * LIMIT_S
    while time.monotonic() < deadline:
        service.stack.restart_ended()
        record = service.stores.tournaments.get(tournament_id)
        if record.ended >= ended and (ended < record.planned or record.state is DeclarationState.COMPLETED):
            return
        time.sleep(0.05)
    raise AssertionError(f"not reached: {record.ended} of {record.planned}, {record.state}")


def _numbers(service: Service, tournament_id: UUID) -> dict[str, Any]:
    """Return the report without the name of the tournament and values derived from it."""
    report = service.stores.tournaments.results.report(service.stores.tournaments.get(tournament_id)).model_dump()
    del report["design"]["declared"]["slug"], report["design"]["digest"], report["standings"]["slug"]
    return report


def test_report_survives_kills(service: Service) -> None:
    calm = _declare(service, "calm")
    _wait(service, calm, 48)
    disturbed = _declare(service, "disturbed")
    for ended, part in ((2, "control"), (12, "evaluate"), (24, "generate"), (30, "control")):
        _wait(service, disturbed, ended)
        os.kill(service.stack.poll()[part].pid, signal.SIGKILL)
    _wait(service, disturbed, 48)
    assert _numbers(service, disturbed) == _numbers(service, calm)
    runs = "SELECT count(*), count(DISTINCT run_id) FROM tournament_runs WHERE tournament_id = :id"
    assert service.query(runs, id=disturbed) == [(48, 48)]
    # Three problems never suffice: of 2³ sign patterns two are as extreme.
    comparison = _numbers(service, calm)["standings"]["comparisons"][0]
    assert (comparison["wins"], comparison["p_value"]) == (3, 0.25)
    assert comparison["verdict"] == "not enough evidence"
