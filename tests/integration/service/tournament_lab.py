"""Small tournaments: declared over HTTP, reconciled and worked in this process."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from speciate.policies import build_client
from speciate.runs.executor import WorkExecutor
from speciate.storage.stores import Stores
from tests.integration.service.conftest import Lab
from tests.support.runs import ToyEvaluator, toy_policy, toy_problem
from workers.tournaments import TournamentController

PROBLEMS = ("toy", "toy-b", "toy-c")
GOOD = [f"```python\nx = {x}\ny = {9 - x}\n```" for x in range(10)]
BAD = [f"```python\nx = {x}\ny = 9\n```" for x in range(7)]


def body(**changes: Any) -> dict[str, Any]:
    return {
        "slug": "first",
        "problems": list(PROBLEMS),
        "entrants": [
            {"name": name, "policy": name, "strategy": "best_of_n", "batch": 2, "samples_per_prompt": 1}
            for name in ("bad", "good")
        ],
        "baseline": "bad",
        "seeds": [3, 4],
        "budget": {"evaluations": 7},
        **changes,
    }


@pytest.fixture
def fair(lab: Lab) -> Lab:
    for slug in PROBLEMS:
        lab.stores.catalog.add_problem(toy_problem().model_copy(update={"slug": slug}))
    for slug, completions in (("good", GOOD), ("bad", BAD)):
        # Hashed, so that seeds differ in what they find.
        options = {"completions": completions, "order": "seed", "tokens_per_completion": 5}
        lab.stores.catalog.add_policy(toy_policy(slug=slug, options=options))
    return lab


def declare(lab: Lab, **changes: Any) -> dict[str, Any]:
    answer = lab.api.post("/v1/tournaments", body(**changes))
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def perform(stores: Stores, work_id: UUID) -> None:
    executor = WorkExecutor(stores.work, stores.signals, ToyEvaluator(), build_client)
    assert executor.execute(work_id)


def play(lab: Lab, *, order: Random | None = None, passes: int = 200, units: int = 25) -> None:
    """Reconcile and work in turns until nothing is pending; ``order`` picks the next unit, else the oldest one."""
    controller = TournamentController()
    for _ in range(passes):
        controller.run(lab.stores)
        for _ in range(units):
            if waiting := lab.stores.runs.work_in_flight():
                perform(lab.stores, (order.choice(waiting) if order else waiting[0]).work_id)
        if not lab.stores.tournaments.pending():
            return


def report_of(lab: Lab, name: str = "first") -> dict[str, Any]:
    answer = lab.api.get(f"/v1/tournaments/{name}/report")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def rows_of(lab: Lab, query: str) -> list[Any]:
    with lab.stores.engine.connect() as connection:
        return list(connection.execute(text(query)))
