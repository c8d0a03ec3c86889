"""Sorted and filtered candidates of a run, over HTTP and on the page."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from speciate.storage import cursors
from tests.integration.service.conftest import Lab, refused, scripted

pytestmark = pytest.mark.servers

SCORES = ((3, 3), (7, 1), (9, 1), (9, 5), (7, 2), (2, 0), (8, 2), (5, 9))
ANSWERS = [*(f"```python\nx = {x}\ny = {y}\n```" for x, y in SCORES), "```python\nz = 1\n```", "nothing"]


@pytest.fixture
def run(lab: Lab) -> str:
    """The address of a run with equal candidates, failed ones, and some that meet targets."""
    lab.stores.catalog.add_policy(scripted(ANSWERS, slug="mixed"))
    started = lab.start(40, policy="mixed", batch=5, seed=3)
    lab.work()
    return f"/v1/runs/{started}"


def walked(lab: Lab, run: str, **query: str) -> list[dict[str, Any]]:
    """Read a list to its end, three at a time."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        answer = lab.api.get(f"{run}/candidates", params={"limit": 3, **query, **cursor})
        assert answer.status_code == 200, answer.text
        page = answer.json()
        found += page["items"]
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


def test_sorting_is_best_first_and_complete(lab: Lab, run: str) -> None:
    every = walked(lab, run)
    assert [c["number"] for c in every] == list(range(len(every), 0, -1))
    assert walked(lab, run, sort="number") == every
    scored = [c for c in every if c["rewards"]]
    assert len({c["rewards"]["x"] for c in scored}) < len(scored) < len(every), "there must be equal and failed ones"
    keys: dict[str, Callable[[dict[str, Any]], float]] = {
        "x": lambda c: -c["rewards"]["x"],
        "y": lambda c: c["rewards"]["y"],
        "scalar": lambda c: -c["scalar"],
    }
    for sort, key in keys.items():
        expected = sorted(every, key=lambda c: (key(c) if c["rewards"] else math.inf, c["number"]))
        assert walked(lab, run, sort=sort) == expected, sort


def test_filters_match_the_records(lab: Lab, run: str) -> None:
    every = walked(lab, run)
    elites = {cell["elite"]["number"] for cell in lab.api.get(f"{run}/archive").json()["items"]}
    asked = lab.api.get("/v1/policies/mixed").json()["id"]

    def meets(holds: Callable[[float, float], bool]) -> Callable[[dict[str, Any]], bool]:
        return lambda c: c["rewards"] is not None and holds(c["rewards"]["x"], c["rewards"]["y"])

    filters: list[tuple[dict[str, str], Callable[[dict[str, Any]], bool]]] = [
        ({"rule": "x >= 7 and y <= 2"}, meets(lambda x, y: x >= 7 and y <= 2)),
        ({"rule": "not (x < 7 or y > 1)"}, meets(lambda x, y: not (x < 7 or y > 1))),
        ({"rule": "x == 9 or not y != 3"}, meets(lambda x, y: x == 9 or y == 3)),
        ({"rule": "x > -1e300"}, meets(lambda x, y: True)),
        ({"target": "both"}, lambda c: "both" in c["targets"]),
        ({"target": "any"}, lambda c: bool(c["targets"])),
        ({"elite": "true"}, lambda c: c["number"] in elites),
        ({"role": "seed"}, lambda c: c["role"] == "seed"),
        ({"policy": "mixed@1"}, lambda c: c["policy_id"] == asked),
        ({"policy": asked, "status": "evaluated"}, lambda c: c["policy_id"] == asked and not c["failure"]),
        ({"status": "failed"}, lambda c: c["failure"] is not None),
    ]
    for query, holds in filters:
        expected = [c for c in every if holds(c)]
        assert 0 < len(expected) < len(every), query
        assert walked(lab, run, **query) == expected, query
        best = sorted(expected, key=lambda c: (-c["rewards"]["x"] if c["rewards"] else math.inf, c["number"]))
        assert walked(lab, run, **query, sort="x") == best, query
    assert walked(lab, run, policy="scripted") == []


HOSTILE = {
    "sort": ["z", "", "x; DROP TABLE candidates", "rewards[1]", "x' DESC--", "\x00", "x" * 81],
    "rule": [
        *("", "x", "x >= 1; SELECT 1", "x >= '1'", "z > 1", "x >= 1e999", "x >= nan", "1 = 1", "x >= :run_id", "\x00"),
        *("(" * 60, "x > 1 or " * 300),
    ],
    "target": ["neither", "", "both' OR 1=1", "\x00"],
    "role": ["king"],
    "elite": ["perhaps"],
    "cursor": [
        cursors.encode("x", 1.0, 5),
        cursors.encode("y", 1.0, 5, 6),
        cursors.encode("y", "1.0", 5),
        cursors.encode("y", 1, 5),
        cursors.encode("y", 1.0, 2**63),
        cursors.encode(5),
    ],
}


def test_malicious_values_are_rejected(lab: Lab, run: str) -> None:
    for name, values in HOSTILE.items():
        for value in values:
            answer = lab.api.get(f"{run}/candidates", params={"sort": "y", name: value})
            refused(answer, 422, "invalid-input")
            page = lab.api.get(
                f"{run.removeprefix('/v1')}/candidates",
                params={"sort": "y", name: value},
                headers={"Accept": "text/html"},
            )
            # A form leaves fields empty, and what can be no role asks for nothing.
            assert page.status_code == (200 if value == "" or name in {"role", "elite"} else 422), (name, value)
            assert "<h1>" in page.text
    for cursor in (cursors.encode("y", math.nan, 5), cursors.encode("y", -math.inf, -(2**63))):
        assert lab.api.get(f"{run}/candidates", params={"sort": "y", "cursor": cursor}).status_code == 200
    refused(lab.api.get(f"{run}/candidates", params={"policy": "missing"}), 404, "not-found")


def test_invalid_rule_names_the_error(lab: Lab, run: str) -> None:
    query = {"rule": "x >= <b>", "status": "evaluated", "show": ["y", "nothing"]}
    page = lab.api.get(f"{run.removeprefix('/v1')}/candidates", params=query, headers={"Accept": "text/html"})
    assert page.status_code == 422
    assert 'value="x &gt;= &lt;b&gt;"' in page.text
    assert "expected a number at column 6" in page.text
    assert "<option selected>evaluated</option>" in page.text
    assert '<input type="hidden" name="show" value="y">' in page.text
    assert 'value="nothing"' not in page.text
