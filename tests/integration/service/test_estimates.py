"""What a run will spend, before it starts, and beside what it then spent."""

from __future__ import annotations

from typing import Any

import pytest

from speciate.domain.policy import Policy, Price
from tests.integration.service.conftest import Lab, refused, scripted

pytestmark = pytest.mark.servers

BODY = {"problem": "toy", "policy": "paid", "lanes": 1, "batch": 4, "strategy": "islands_map_elites"}


@pytest.fixture
def paid(lab: Lab) -> Policy:
    """A policy whose prompts have 100 tokens and whose completions have 30, at $1,000 and $2,000 for a million."""
    policy = scripted(slug="paid", price=Price(input=1000, output=2000))
    options = policy.options | {"prompt_tokens": 100, "tokens_per_completion": 30}
    return lab.stores.catalog.add_policy(policy.model_copy(update={"options": options, "model": "m"}))[0].definition


def _estimate(lab: Lab, **changes: Any) -> dict[str, Any]:
    answer = lab.api.post("/v1/runs:estimate", BODY | {"budget": {"evaluations": 13}} | changes)
    assert answer.status_code == 200, answer.text
    estimate: dict[str, Any] = answer.json()
    return estimate


def test_without_earlier_runs_the_first_prompt_and_max_tokens_bound_the_estimate(lab: Lab, paid: Policy) -> None:
    estimate = _estimate(lab)
    assert estimate["sources"] == [{"policy": "paid@1", "same": [], "runs": []}]
    assert estimate["evaluations"] == {"low": 13, "expected": 13, "high": 13}
    assert (estimate["completions"]["expected"], estimate["calls"]["expected"]) == (12, 3)
    assert estimate["completion_tokens"]["high"] == 12 * paid.sampling.max_tokens
    assert estimate["prompt_tokens"]["high"] == 3 * estimate["first_prompt_bytes"]
    assert (estimate["failed"], estimate["seconds"]) == (None, None)
    assert lab.api.get("/v1/runs").json()["items"] == []


def test_a_second_run_spends_what_the_first_one_lets_expect(lab: Lab, paid: Policy) -> None:
    first = lab.start(policy="paid")
    lab.work()
    estimate = _estimate(lab, budget={"evaluations": 25})
    assert estimate["sources"] == [
        {"policy": "paid@1", "same": ["policy", "problem", "strategy"], "runs": [str(first)]}
    ]
    second = lab.start(25, policy="paid", estimate=True)
    lab.work()
    run = lab.stores.runs.get(second)
    assert run.estimate is not None
    assert run.estimate.model_dump(mode="json") == estimate
    for name in ("tokens", "dollars"):
        amount = getattr(run.estimate, name)
        assert amount.low < amount.expected < amount.high
        assert run.actual[name] == pytest.approx(amount.expected, rel=0.05)
    assert (run.estimate.calls.expected, run.estimate.completions.expected) == (6, run.actual["completions"])
    assert run.estimate.seconds is not None
    assert "Estimated before the start" in lab.api.get(f"/runs/{second}/configuration").text
    # The same policy tells more than the same problem.
    lab.stores.catalog.add_policy(scripted(slug="other"))
    (other,) = _estimate(lab, policy="other")["sources"]
    assert other == {"policy": "other@1", "same": ["problem", "strategy"], "runs": [str(second), str(first)]}


@pytest.mark.parametrize(
    ("budget", "limited"), [({"dollars": 1.0}, "dollars"), ({"tokens": 1000}, "tokens"), ({"seconds": 9.0}, "seconds")]
)
def test_every_limit_of_a_budget_determines_the_rest(
    lab: Lab, paid: Policy, budget: dict[str, Any], limited: str
) -> None:
    lab.start(policy="paid")
    lab.work()
    estimate = _estimate(lab, budget=budget)
    assert estimate[limited] == pytest.approx(dict.fromkeys(("low", "expected", "high"), budget[limited]), rel=0.01)
    assert 0 < estimate["evaluations"]["low"] < estimate["evaluations"]["expected"] < estimate["evaluations"]["high"]
    capped = _estimate(lab, budget=budget | {"evaluations": 2})
    assert capped["evaluations"]["high"] == 2


def test_an_estimate_refuses_what_the_run_would_and_a_time_that_nothing_tells(lab: Lab) -> None:
    refused(lab.api.post("/v1/runs:estimate", BODY | {"budget": {"evaluations": 0}}), 422, "invalid-input")
    seconds = BODY | {"policy": "mutator", "budget": {"seconds": 5}}
    details = refused(lab.api.post("/v1/runs:estimate", seconds), 422, "invalid-input")
    assert "no earlier run tells how many evaluations seconds hold" in details["detail"]
