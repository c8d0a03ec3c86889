"""Runs with ensembles over HTTP, on PostgreSQL."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from typing import Any
from uuid import UUID

import pytest

from speciate.cli.runs.replay import replay_run
from tests.integration.service.conftest import Lab, refused, scripted
from tests.support.runs import ToyEvaluator

pytestmark = pytest.mark.servers

BODY = {"problem": "toy", "budget": {"evaluations": 60}, "lanes": 1, "batch": 4, "samples_per_prompt": 2}


@pytest.fixture
def ids(lab: Lab) -> dict[str, str]:
    """Ids of three policies: the usual one, one that never writes a program, and one that always writes the same."""
    answers = {"mute": ["I would rather not."], "steady": ["```python\nx = 3\ny = 3\n```"]}
    made = {slug: lab.stores.catalog.add_policy(scripted(given, slug=slug))[0] for slug, given in answers.items()}
    made["scripted"] = lab.stores.catalog.policy("scripted")
    return {slug: str(version.id) for slug, version in made.items()}


def _candidates(lab: Lab, run_id: UUID) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = lab.api.get(f"/v1/runs/{run_id}/candidates", params={"limit": 100}).json()["items"]
    return items


def test_candidates_name_their_policy(lab: Lab, ids: dict[str, str]) -> None:
    run_id = lab.start(60, policy={"scripted": 3, "mute@1": 1}, mutator={"steady": 1, "scripted": 1})
    lab.work()
    made = [c for c in _candidates(lab, run_id) if c["role"] != "seed"]
    counts = Counter((c["role"], c["policy_id"]) for c in made)
    assert {policy for role, policy in counts if role == "mutate"} == {ids["steady"], ids["scripted"]}
    assert {c["policy_id"] for c in made if c["failure_reason"] == "no_code_block"} <= {ids["mute"]}
    rollouts = lab.api.get(f"/v1/runs/{run_id}/rollouts", params={"limit": 100}).json()["items"]
    by_rollout = {rollout["id"]: rollout["policy_id"] for rollout in rollouts}
    assert all(by_rollout[c["rollout_id"]] == c["policy_id"] for c in made)

    run = lab.api.get(f"/v1/runs/{run_id}").json()
    assert (run["policy"], run["mutator"], run["state"]) == ("scripted", "steady", "completed")
    members = {(m["role"], m["policy"]): m for m in run["ensembles"]}
    assert [(m["role"], m["policy"], m["weight"]) for m in run["ensembles"]] == [
        ("propose", "scripted", 3),
        ("propose", "mute", 1),
        ("mutate", "steady", 1),
        ("mutate", "scripted", 1),
    ]
    for (role, slug), member in members.items():
        assert member["asked"] == member["judged"] == counts[role, ids[slug]]
        assert member["won"] <= member["asked"]


@pytest.mark.parametrize("choice", ["weights", "ucb"])
def test_ensemble_run_replays_event_by_event(lab: Lab, ids: dict[str, str], choice: str) -> None:
    changes = {"policy": dict.fromkeys(ids, 1), "policy_choice": choice, "strategy": "best_of_n"}
    if choice == "ucb":
        changes["policy_discount"] = 0.9
    run_id = lab.start(60, **changes)
    lab.work()
    assert {c["policy_id"] for c in _candidates(lab, run_id)} == {None, *ids.values()}
    report = replay_run(lab.stores, run_id, ToyEvaluator())  # type: ignore[arg-type]
    assert report.identical, report.describe()


def test_single_policy_is_not_an_ensemble(lab: Lab) -> None:
    plain, named = lab.start(13), lab.start(13, policy={"scripted": 5})
    lab.work()
    runs = [lab.api.get(f"/v1/runs/{run_id}").json() for run_id in (plain, named)]
    assert [run["ensembles"] for run in runs] == [[], []]
    events = [
        [
            (e["kind"], e["data"])
            for e in lab.api.get(f"/v1/runs/{run_id}/events", params={"limit": 500}).json()["items"]
        ]
        for run_id in (plain, named)
    ]
    assert events[0] == events[1]


def test_ensemble_unlocks_belong_to_no_member(lab: Lab, ids: dict[str, str]) -> None:
    alone, together = lab.start(60), lab.start(60, policy=dict.fromkeys(("scripted", "steady"), 1))
    lab.work()
    every = lab.api.get("/v1/unlocks").json()["items"]
    told = {UUID(u["run_id"]): u["ensemble"] for u in every}
    assert told == {alone: [], together: ["scripted@1", "steady@1"]}
    of_one = lab.api.get("/v1/unlocks", params={"policy": "scripted"}).json()["items"]
    assert {UUID(u["run_id"]) for u in of_one} == {alone}
    for policy, runs in (("scripted", {alone, together}), ("steady", {together}), ("mute", set[UUID]())):
        listed = lab.api.get("/v1/runs", params={"policy": policy}).json()["items"]
        assert {UUID(run["id"]) for run in listed} == runs


def test_idempotency_key_covers_the_ensemble(lab: Lab, ids: dict[str, str]) -> None:
    key = {"Idempotency-Key": "k"}
    first = lab.api.post("/v1/runs", BODY | {"policy": {"scripted": 1, "mute": 1}}, headers=key).json()
    again = lab.api.post("/v1/runs", BODY | {"policy": {"scripted": 1, "mute": 1}}, headers=key).json()
    assert again["id"] == first["id"]
    for other in ({"scripted": 2, "mute": 1}, {"scripted": 1, "steady": 1}, "scripted"):
        refused(lab.api.post("/v1/runs", BODY | {"policy": other}, headers=key), 409, "conflict")


class _Form(HTMLParser):
    """Collects the fields that a browser submits with the form for a run."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._select, self._taken = "", False
        self.feed(page.partition('action="/runs" class')[2].partition("</form>")[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        box = given.get("type") == "checkbox"
        if tag == "input" and (not box or "checked" in given):
            self.fields[given["name"]] = "on" if box else given.get("value", "")
        elif tag == "select":
            self._select = given["name"]
        elif tag == "option" and ("selected" in given or self._select not in self.fields):
            self._taken = True
            self.fields[self._select] = ""

    def handle_endtag(self, tag: str) -> None:
        self._taken = self._taken and tag != "option"

    def handle_data(self, data: str) -> None:
        if self._taken:
            self.fields[self._select] = data


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"policy": {"scripted": 3, "mute@1": 0.1234567}, "mutator": "steady"},
        {"mutator": "steady", "novelty": {"same": "text", "near": 0.9, "shingle": 3, "window": 9}},
        {
            "policy": {"scripted": 1, "steady": 1},
            "mutator": {"mute": 1, "steady": 1},
            "policy_choice": "ucb",
            "policy_discount": 0.98,
            "novelty": {"same": "syntax"},
            "guidance": {"every": 8, "most": 2},
            "stop_on_plateau": 7,
            "strategy": "best_of_n",
        },
    ],
)
def test_run_form_prefilled_from_a_run_repeats_it(lab: Lab, ids: dict[str, str], changes: dict[str, Any]) -> None:
    model = lab.start(60, **changes)
    form = _Form(lab.api.get(f"/runs/new?like={model}").text).fields
    own = {"Origin": str(lab.api.http.base_url).rstrip("/")}
    answer = lab.api.http.post("/runs", data=form, headers=own)
    assert answer.status_code == 303, answer.text
    runs = [lab.api.get(f"/v1{path}").json() for path in (f"/runs/{model}", answer.headers["location"])]
    same = ("spec", "problem_id", "policy_id", "mutator_id", "ensembles")
    assert [{name: run[name] for name in same} for run in runs] == [{name: runs[0][name] for name in same}] * 2
    assert runs[0]["id"] != runs[1]["id"]


INVALID_FORMS: list[tuple[dict[str, str], str]] = [
    ({"policy": "scripted, scripted=2"}, "names a policy twice"),
    ({"policy": "scripted=much, mute"}, "number"),
    ({"policy": "scripted", "policy_choice": "ucb"}, "at least two"),
    ({"policy": "scripted", "novelty.near": "1.5"}, "less than or equal to 1"),
    ({"policy": "scripted", "guidance.every": "often"}, "integer"),
]


def test_invalid_form_keeps_its_values(lab: Lab) -> None:
    for given, told in INVALID_FORMS:
        own = {"Origin": str(lab.api.http.base_url).rstrip("/")}
        answer = lab.api.http.post("/runs", data={"problem": "toy", "budget.evaluations": "5", **given}, headers=own)
        assert answer.status_code == 422
        assert told in answer.text
        assert given.items() <= _Form(answer.text).fields.items()


def test_a_form_with_a_budget_beyond_reason_needs_a_tick(lab: Lab, ids: dict[str, str]) -> None:
    own = {"Origin": str(lab.api.http.base_url).rstrip("/")}
    form = {"problem": "toy", "policy": "scripted", "budget.evaluations": "2000000"}
    assert 'name="confirmed"' not in lab.api.get("/runs/new").text
    refused = lab.api.http.post("/runs", data=form, headers=own)
    assert refused.status_code == 422
    assert "A budget of 2,000,000 evaluations is unusually large" in refused.text
    assert 'name="confirmed"' in refused.text
    assert lab.api.http.post("/runs", data=form | {"confirmed": "on"}, headers=own).status_code == 303
    declared = {"slug": "big", "problems": "toy", "evaluations": "2000000", "policy": "scripted", "slice": "1000"}
    refused = lab.api.http.post("/campaigns", data=declared, headers=own)
    assert (refused.status_code, 'name="confirmed"' in refused.text) == (422, True), refused.text
    assert lab.api.http.post("/campaigns", data=declared | {"confirmed": "on"}, headers=own).status_code == 303
    # The API is for programs and asks nothing.
    lab.start(2_000_000)


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"policy": {}}, "policy"),
    ({"policy": None}, "policy"),
    ({"policy": {"scripted": 0}}, "policy.scripted"),
    ({"policy": {"scripted": "NaN"}}, "policy.scripted"),
    ({"policy": {str(i): 1 for i in range(17)}}, "16"),
    ({"policy": {"scripted": 1, "scripted@1": 1}}, "scripted@1 twice"),
    ({"policy": "scripted", "policy_choice": "ucb"}, "at least two"),
    ({"policy": {"scripted": 1, "mute": 1}, "policy_discount": 0.9}, "policy_choice 'ucb'"),
    ({"policy": {"scripted": 1, "mute": 1}, "policy_choice": "ucb", "policy_discount": 0}, "policy_discount"),
    ({"policy": {"scripted": 2, "mute": 1}, "policy_choice": "ucb"}, "equal weights"),
    ({"policy": {"scripted": 1, "mute": 1}, "policy_choice": "luck"}, "policy_choice"),
]


def test_invalid_ensembles_are_rejected(lab: Lab, ids: dict[str, str]) -> None:
    for changes, told in INVALID:
        details = refused(lab.api.post("/v1/runs", BODY | changes), 422, "invalid-input")
        assert told in str(details)
        assert lab.api.get("/v1/runs").json()["items"] == []


def test_unknown_ensemble_member_is_not_found(lab: Lab) -> None:
    refused(lab.api.post("/v1/runs", BODY | {"policy": {"scripted": 1, "missing": 1}}), 404, "not-found")
