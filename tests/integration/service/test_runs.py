"""Starting, reading and steering runs over HTTP."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any
from uuid import uuid4

import pytest

from service.api import runs
from service.api.runs import store_if_match
from service.dashboard.routes.compare import MAX_RUNS
from speciate.storage.runs.store import PostgresRunStore
from tests.integration.service.conftest import Lab, refused, scripted

pytestmark = pytest.mark.servers

BODY = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 9}, "lanes": 1, "batch": 4}
REFUSED = [
    ({"budget": {"evaluations": 0}}, "budget.evaluations"),
    ({"budget": {"seconds": -1}}, "budget.seconds"),
    ({"budget": {}}, "budget"),
    ({"strategy": "wishing"}, "strategy"),
    ({"strategy_options": {"islands": 0}}, "strategy_options.islands"),
    ({"strategy_options": {"island": 3}}, "strategy_options.island"),
    ({"lanes": 0}, "lanes"),
    ({"seed": 2**63}, "seed"),
    ({"seed": 0.5}, "seed"),
    ({"stop_on_plateau": 0}, "stop_on_plateau"),
    ({"novelty": {"near": 1.5}}, "novelty.near"),
    ({"novelty": {"same": "meaning"}}, "novelty.same"),
    ({"colour": "red"}, "colour"),
    ({"problem": None}, "problem"),
]


def test_run_create_and_get(lab: Lab) -> None:
    answer = lab.api.post("/v1/runs", BODY | {"policy": "scripted@1", "seed": 7})
    assert answer.status_code == 202
    run = answer.json()
    assert (run["state"], run["problem"], run["policy_version"], run["spec"]["seed"]) == ("running", "toy", 1, 7)
    read = lab.api.get(answer.headers["location"])
    assert read.json()["id"] == run["id"]
    assert read.headers["etag"] == answer.headers["etag"]
    lab.work()
    done = lab.api.get(answer.headers["location"]).json()
    assert (done["state"], done["spent"]["evaluations"], done["candidates"]) == ("completed", 9, 9)


def test_plateau_is_reported_and_stops_only_on_request(lab: Lab) -> None:
    shown, stopped = lab.start(100), lab.start(100, stop_on_plateau=20)
    lab.work()
    free, short = (lab.api.get(f"/v1/runs/{run_id}").json() for run_id in (shown, stopped))
    assert free["since_improvement"] > 40
    assert free["reason"] == "the budget of evaluations is spent"
    assert 20 <= short["since_improvement"] < 24
    assert short["state"] == "completed"
    assert short["reason"] == f"the archive has not improved for {short['since_improvement']} evaluations"


def test_idempotency_key_creates_one_run(lab: Lab) -> None:
    key = {"Idempotency-Key": "k-1"}
    answers = [lab.api.post("/v1/runs", BODY, headers=key) for _ in range(3)]
    assert {answer.status_code for answer in answers} == {202}
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(lab.api.get("/v1/runs").json()["items"]) == 1
    refused(lab.api.post("/v1/runs", BODY | {"seed": 1}, headers=key), 409, "conflict")
    other = lab.api.post("/v1/runs", BODY, headers={"Idempotency-Key": "k-2"})
    assert other.json()["id"] != answers[0].json()["id"]
    for bad in ("", "a b", "x" * 256):
        refused(lab.api.post("/v1/runs", BODY, headers={"Idempotency-Key": bad}), 422, "invalid-input")


def test_a_repeated_request_returns_its_run_also_after_a_newer_version(lab: Lab) -> None:
    key = {"Idempotency-Key": "k"}
    first = lab.api.post("/v1/runs", BODY, headers=key).json()
    problem = lab.stores.catalog.problem(first["problem"]).definition
    newer, new = lab.stores.catalog.add_problem(problem.model_copy(update={"title": "Another title"}))
    assert new
    assert newer.version > 1
    assert lab.api.post("/v1/runs", BODY, headers=key).json()["id"] == first["id"]


def test_concurrent_requests_with_one_key_create_one_run(lab: Lab) -> None:
    for key in ("a", "b", "c"):
        with ThreadPoolExecutor(4) as pool:
            answers = list(
                pool.map(lambda _, key=key: lab.api.post("/v1/runs", BODY, headers={"Idempotency-Key": key}), range(8))
            )
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["id"] for answer in answers}) == 1


def test_invalid_values_are_rejected_before_storing(lab: Lab) -> None:
    changes: dict[str, Any]
    for changes, where in REFUSED:
        details = refused(lab.api.post("/v1/runs", BODY | changes), 422, "invalid-input")
        assert where in [error["where"] for error in details["errors"]]
        assert lab.api.get("/v1/runs").json()["items"] == []


def test_non_finite_numbers_are_rejected_with_their_place(lab: Lab) -> None:
    bodies = {
        "budget.seconds": '{"problem": "toy", "policy": "scripted", "budget": {"seconds": %s}}',
        "strategy_options.crossover": '{"problem": "toy", "strategy_options": {"crossover": %s}}',
    }
    for number, (place, body) in product(("NaN", "Infinity", "-Infinity", "1e999"), bodies.items()):
        answer = lab.api.http.post("/v1/runs", content=body % number, headers={"Content-Type": "application/json"})
        (error,) = refused(answer, 422, "invalid-input")["errors"]
        assert error["where"] == place
        assert "finite" in error["message"]


def test_unknown_names_and_ids_are_not_found(lab: Lab) -> None:
    for changes in ({"problem": "no"}, {"policy": "no@2"}, {"mutator": str(uuid4())}):
        refused(lab.api.post("/v1/runs", BODY | changes), 404, "not-found")
    for path in (
        "",
        "/candidates",
        "/front",
        "/archive",
        "/rollouts",
        "/events",
        "/unlocks",
        "/export",
        "/candidates/1",
    ):
        refused(lab.api.get(f"/v1/runs/{uuid4()}{path}"), 404, "not-found")
        refused(lab.api.get(f"/v1/runs/no-uuid{path}"), 422, "invalid-input")
    for action in ("pause", "resume", "cancel"):
        refused(lab.api.post(f"/v1/runs/{uuid4()}:{action}"), 404, "not-found")
        refused(lab.api.post(f"/v1/runs/no-uuid:{action}"), 422, "invalid-input")
    refused(lab.api.post(f"/v1/runs/{uuid4()}:explode"), 405, "method-not-allowed")


def test_steering(lab: Lab) -> None:
    run = f"/v1/runs/{lab.start()}"
    paused = lab.api.post(f"{run}:pause", {"reason": "lunch"}).json()
    assert (paused["state"], paused["reason"]) == ("paused", "lunch")
    refused(lab.api.post(f"{run}:pause"), 409, "conflict")
    assert lab.work(units=0) == 0
    assert lab.api.post(f"{run}:resume").json()["state"] == "running"
    cancelled = lab.api.post(f"{run}:cancel", {"reason": "enough"}).json()
    assert (cancelled["state"], cancelled["reason"]) == ("cancelled", "enough")
    assert "cannot become running: it has ended." in refused(lab.api.post(f"{run}:resume"), 409, "conflict")["detail"]
    refused(lab.api.post(f"{run}:pause", {"reason": "x" * 2001}), 422, "invalid-input")
    refused(lab.api.post(f"{run}:pause", {"why": "x"}), 422, "invalid-input")


def test_etag_changes_with_the_run(lab: Lab) -> None:
    run = f"/v1/runs/{lab.start()}"
    tag = lab.api.get(run).headers["etag"]
    same = lab.api.get(run, headers={"If-None-Match": f'"other", W/{tag}'})
    assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag)
    lab.work(units=1)
    changed = lab.api.get(run, headers={"If-None-Match": tag})
    assert changed.status_code == 200
    assert changed.headers["etag"] != tag
    details = refused(lab.api.post(f"{run}:pause", headers={"If-Match": tag}), 412, "precondition-failed")
    assert changed.headers["etag"] in details["detail"]
    assert lab.api.get(run).json()["state"] == "running"
    paused = lab.api.post(f"{run}:pause", headers={"If-Match": changed.headers["etag"]})
    assert paused.status_code == 200
    assert lab.api.post(f"{run}:resume", headers={"If-Match": "*"}).json()["state"] == "running"


@pytest.mark.parametrize("change", [("pause", None), ("cancel", None), (None, {"name": "mine"})])
def test_if_match_is_checked_atomically(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, change: tuple[str | None, dict[str, str] | None]
) -> None:
    run_id = lab.start()
    tag = lab.api.get(f"/v1/runs/{run_id}").headers["etag"]
    condition, worked = store_if_match, []

    def late(header: str | None, store: PostgresRunStore) -> PostgresRunStore:
        """Something is committed after the request has read its condition, and before it changes anything."""
        worked.append(lab.work(units=1))
        return condition(header, store)

    monkeypatch.setattr(runs, "store_if_match", late)
    verb, body = change
    method, path = ("PATCH", f"/v1/runs/{run_id}") if verb is None else ("POST", f"/v1/runs/{run_id}:{verb}")
    refused(lab.api.http.request(method, path, json=body, headers={"If-Match": tag}), 412, "precondition-failed")
    now = lab.api.get(f"/v1/runs/{run_id}").json()
    assert worked
    assert (now["state"], now["name"]) == ("running", "")


def test_list_filters(lab: Lab) -> None:
    first, second = lab.start(), lab.start()
    lab.api.post(f"/v1/runs/{first}:cancel")
    found = lab.api.get("/v1/runs", params={"state": "running", "problem": "toy", "policy": "scripted@1"}).json()
    assert [item["id"] for item in found["items"]] == [str(second)]
    everything = lab.api.get("/v1/runs").json()["items"]
    assert [item["id"] for item in everything] == [str(second), str(first)]
    refused(lab.api.get("/v1/runs", params={"problem": "no"}), 404, "not-found")
    refused(lab.api.get("/v1/runs", params={"state": "asleep"}), 422, "invalid-input")


def test_runs_of_several_policies_are_compared_apart_from_those_of_the_first_one(lab: Lab) -> None:
    lab.stores.catalog.add_policy(scripted(["```python\nx = 3\ny = 3\n```"], slug="other"))
    several = [{"policy": {"scripted": weight, "other": 1}} for weight in (1, 2)]
    runs = [lab.start(2, **changes) for changes in ({}, {"mutator": "other"}, *several)]
    lab.work()
    params = {"run": [*map(str, runs)], "group": "policy"}
    names = {row.split(",")[0] for row in lab.api.get("/compare/curves.csv", params=params).text.splitlines()[1:]}
    assert names == {"scripted@1", "scripted@1 with other@1", "scripted@1 + other@1"}
    rows = lab.api.get("/compare", params=params).text.partition("Different settings")[2].split("<tr>")
    settings = {row.split("</th>")[0].rpartition(">")[2]: re.findall(r"<td[^>]*>([^<]*)", row) for row in rows}
    assert settings["policy"] == ["scripted@1", "scripted@1", *["scripted@1 + other@1"] * 2]
    assert settings["mutator"][1] == "other@1"
    assert settings["weights"][3] == "propose scripted 2, propose other 1, mutate scripted 2, mutate other 1"


def test_comparison_counts_omitted_runs(lab: Lab) -> None:
    assert "Compare selected" not in lab.api.get("/runs").text
    runs = [lab.start() for _ in range(MAX_RUNS + 1)]
    assert "Compare selected" in lab.api.get("/runs").text
    whole, more = (lab.api.get("/compare", params={"run": [*map(str, given), ""]}).text for given in (runs[1:], runs))
    assert "left out" not in whole
    assert f"At most {MAX_RUNS} runs are compared at a time; 1 run is left out." in more
