"""What a run's record says of the time that is left."""

from __future__ import annotations

import pytest

from speciate.ports.records.runs import RunRecord
from tests.unit.client.stand_in import run_json


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
def test_the_limit_that_is_nearest_says_how_long_it_takes(budget: dict[str, float], share: float, to_go: float) -> None:
    run = _record(spent={"evaluations": 40, "tokens": 800, "seconds": 10.0}, budget=budget)
    assert run.share_spent == pytest.approx(share)
    assert run.seconds_to_go == pytest.approx(to_go)


def test_what_does_not_go_on_has_no_time_left() -> None:
    budget = {"evaluations": 100}
    assert _record(spent={"evaluations": 0, "tokens": 0}, budget=budget).seconds_to_go is None
    spent = {"evaluations": 40}
    assert _record(spent=spent, budget=budget, state="paused").seconds_to_go is None
    assert _record(spent=spent, budget=budget, granted=60).seconds_to_go is None
