"""Sorted runs, over HTTP and on the page."""

from __future__ import annotations

import re
from typing import Any

import pytest
import sqlalchemy as sa

from speciate.domain.policy import Price
from speciate.schema.runs import RunOrder
from speciate.storage import cursors
from tests.integration.service.conftest import Lab, refused, scripted
from tests.support.runs import toy_policy, toy_problem

pytestmark = pytest.mark.servers

_STATES = ["created", "running", "paused", "completed", "failed", "cancelled"]


@pytest.fixture
def runs(lab: Lab) -> list[dict[str, Any]]:
    """Runs, newest first, that differ in every key and with equal keys among them."""
    lab.stores.catalog.add_problem(toy_problem().model_copy(update={"slug": "another"}))
    lab.stores.catalog.add_policy(scripted(["```python\nx = 1\ny = 1\n```"], slug="poor"))
    for evaluations, problem, policy in ((13, "toy", "scripted"), (9, "another", "poor"), (5, "toy", "poor")):
        lab.start(evaluations, problem=problem, policy=policy)
        lab.work()
    lab.api.post(f"/v1/runs/{lab.start()}:cancel")
    paused = lab.start(problem="another")
    lab.work(2)
    lab.api.post(f"/v1/runs/{paused}:pause")
    with lab.stores.engine.begin() as connection:  # scripted policies use no tokens
        connection.execute(sa.text("UPDATE run_progress SET tokens = evaluations % 5 * 10, cost = evaluations % 3"))
    return walked(lab)


def walked(lab: Lab, **query: str) -> list[dict[str, Any]]:
    """Read the list to its end, two at a time."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = lab.api.get("/v1/runs", params={"limit": 2, **query, **cursor})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


def _met(run: dict[str, Any]) -> list[int]:
    """Return the places of the targets that the best candidate meets."""
    names = [target.name for target in toy_problem().targets]
    return sorted(names.index(name) for name in (run["best"] or {"targets": []})["targets"])


KEYS = {
    RunOrder.STARTED: lambda run: run["id"],
    RunOrder.STATE: lambda run: _STATES.index(run["state"]),
    RunOrder.PROBLEM: lambda run: run["problem"],
    RunOrder.POLICY: lambda run: run["policy"],
    RunOrder.BEST: lambda run: (len(_met(run)), max(_met(run), default=-1)),
    RunOrder.DURATION: lambda run: run["spent"]["seconds"],
    RunOrder.EVALUATIONS: lambda run: run["spent"]["evaluations"],
    RunOrder.TOKENS: lambda run: run["spent"]["tokens"],
    RunOrder.COST: lambda run: run["spent"]["cost"],
}


def test_completions_cost_the_price_of_their_policy(lab: Lab) -> None:
    options = {"completions": ["```python\nx = 1\ny = 1\n```"], "prompt_tokens": 1000, "tokens_per_completion": 10}
    lab.stores.catalog.add_policy(toy_policy(slug="paid", options=options, price=Price(input=2.5, output=100)))
    run = lab.start(9, policy="paid", batch=2)
    lab.work()
    spent = lab.api.get(f"/v1/runs/{run}").json()["spent"]
    rollouts = lab.api.get(f"/v1/runs/{run}/rollouts").json()["items"]
    prompts = sum(rollout["prompt_tokens"] for rollout in rollouts)
    assert spent["tokens"] == prompts + 10 * len(rollouts) > 4000
    assert spent["cost"] == pytest.approx((2.5 * prompts + 1000 * len(rollouts)) / 1e6)
    assert f"${spent['cost']:.2f}" in lab.api.get("/runs").text


def test_every_order_is_complete_in_both_directions(lab: Lab, runs: list[dict[str, Any]]) -> None:
    for order in RunOrder:
        keys = [KEYS[order](run) for run in runs]
        assert len(set(keys)) > 1
        # Sorting is stable, also when reversed: runs that tie stay newest first.
        expected = sorted(runs, key=KEYS[order], reverse=not order.ascending)
        turned = sorted(runs, key=KEYS[order], reverse=order.ascending)
        assert [run["id"] for run in walked(lab, sort=order)] == [run["id"] for run in expected]
        assert [run["id"] for run in walked(lab, sort=order, reverse="true")] == [run["id"] for run in turned]


def test_a_list_of_running_runs_by_duration_ends(lab: Lab) -> None:
    started = [str(lab.start()) for _ in range(3)]
    for reverse, expected in (("false", started), ("true", started[::-1])):
        listed = walked(lab, sort="duration", reverse=reverse, limit="1")
        assert [run["id"] for run in listed] == expected


def test_orders_combine_with_filters(lab: Lab, runs: list[dict[str, Any]]) -> None:
    expected = sorted((run for run in runs if run["problem"] == "toy"), key=KEYS[RunOrder.TOKENS], reverse=True)
    assert walked(lab, sort="tokens", problem="toy") == expected


def test_a_cursor_of_another_order_is_refused(lab: Lab, runs: list[dict[str, Any]]) -> None:
    cursor = lab.api.get("/v1/runs", params={"sort": "tokens", "limit": 1}).json()["next_cursor"]
    wrong = [{"sort": "evaluations"}, {"sort": "tokens", "reverse": "true"}, {"sort": "problem"}, {}]
    for query in wrong:
        refused(lab.api.get("/v1/runs", params={**query, "cursor": cursor}), 422, "invalid-input")
    for forged in (
        ["tokens", 1.5, runs[0]["id"], 1.0],
        ["tokens", 2**80, runs[0]["id"], 1.0],
        ["tokens", 1, "x", 1.0],
        ["tokens", 1, runs[0]["id"], None],
        [1],
    ):
        query = {"sort": "tokens", "cursor": cursors.encode(*forged)}
        refused(lab.api.get("/v1/runs", params=query), 422, "invalid-input")
    refused(lab.api.get("/v1/runs", params={"sort": "color"}), 422, "invalid-input")


def test_the_page_links_every_order_and_its_opposite(lab: Lab, runs: list[dict[str, Any]]) -> None:
    text = lab.api.get("/runs", params={"sort": "tokens", "problem": "toy"}).text
    listed = re.findall(r'href="/runs/([0-9a-f-]{36})"', text)
    assert listed == [run["id"] for run in walked(lab, sort="tokens", problem="toy")]
    heads = dict(re.findall(r'aria-sort="(\w+)"><a href="([^"]+)"', text))
    assert heads == {"descending": "/runs?problem=toy&amp;sort=tokens&amp;reverse=1"}
    for order in set(RunOrder) - {RunOrder.TOKENS}:
        assert f'"/runs?problem=toy&amp;sort={order.value}"' in text
    # The filter form keeps the order.
    assert '<input type="hidden" name="sort" value="tokens">' in text
    turned = lab.api.get("/runs", params={"sort": "tokens", "reverse": "1"}).text
    assert '<a href="/runs?sort=tokens"' in turned
    assert 'aria-sort="ascending"' in turned
    assert lab.api.get("/runs", params={"sort": "color"}).status_code == 200
