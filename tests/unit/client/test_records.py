"""Remaining time in the record of a run."""

from __future__ import annotations

import pytest

from speciate.schema.runs import RunRecord
from tests.unit.client.fake_service import run_json


def _record(*, spent: dict[str, float], budget: dict[str, float], **values: object) -> RunRecord:
    run = run_json()
    run["spent"] |= spent
    run["spec"]["budget"] = budget
    return RunRecord.model_validate(run | values)


@pytest.mark.parametrize(
    ("budget", "share", "to_go"),
    [
        ({"evaluations": 100}, 0.4, 15.0),
        ({"evaluations": 100, "tokens": 1000}, 0.8, 2.5),
        ({"seconds": 40.0}, 0.25, 30.0),
        ({"evaluations": 20}, 1.0, 0.0),
    ],
)
def test_nearest_limit_determines_the_remaining_time(budget: dict[str, float], share: float, to_go: float) -> None:
    run = _record(spent={"evaluations": 40, "tokens": 800, "seconds": 10.0}, budget=budget)
    assert run.share_spent == pytest.approx(share)
    assert run.seconds_to_go == pytest.approx(to_go)


def test_inactive_run_has_no_remaining_time() -> None:
    budget = {"evaluations": 100}
    assert _record(spent={"evaluations": 0, "tokens": 0}, budget=budget).seconds_to_go is None
    spent = {"evaluations": 40}
    assert _record(spent=spent, budget=budget, state="paused").seconds_to_go is None
    assert _record(spent=spent, budget=budget, granted=60).seconds_to_go is None


@pytest.mark.parametrize("engine", [None, "openevolve"])
def test_a_run_whose_candidates_come_from_outside_waits_while_none_is_evaluated(engine: str | None) -> None:
    spec = {**run_json()["spec"], "engine": engine}
    for reserved, state in ((0, "waiting"), (1, "running")):
        spent = run_json()["spent"] | {"evaluations": 40, "reserved_evaluations": reserved}
        run = RunRecord.model_validate(run_json() | {"spent": spent, "spec": spec, "external": engine is None})
        assert (run.outcome, run.seconds_to_go) == (state, None)
