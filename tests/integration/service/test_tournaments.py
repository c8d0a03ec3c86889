"""Tests of tournaments: declared over HTTP, reconciled by the controller, reported from the stored summaries."""

from __future__ import annotations

import html
import json
import re
from contextlib import suppress
from random import Random
from typing import Any
from unittest.mock import Mock
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from speciate.domain.errors import InvalidInputError, UnavailableError
from speciate.domain.rollout import Completion
from speciate.domain.webhook import Webhook
from speciate.policies.scripted import ScriptedPolicy
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.storage.declarations.summaries import RunSummaries
from tests.integration.service.conftest import Lab, refused
from tests.integration.service.tournament_lab import (
    BAD,
    PROBLEMS,
    body,
    declare,
    fair,
    perform,
    play,
    report_of,
    rows_of,
)
from tests.support.runs import toy_policy, toy_problem
from workers import reconciler
from workers.tournaments import TournamentController
from workers.webhooks import body_of

__all__ = ["fair"]


class Killed(BaseException):
    """The process was killed."""


pytestmark = pytest.mark.servers


def test_tournament_completes_with_every_number(fair: Lab) -> None:
    trained = [{**entrant, "method": entrant["name"], "training_seed": 7} for entrant in body()["entrants"]]
    made = declare(fair, entrants=trained)
    assert [(e["method"], e["training_seed"]) for e in made["declaration"]["entrants"]] == [("bad", 7), ("good", 7)]
    assert (made["state"], made["planned"], made["started"]) == ("running", 12, 0)
    assert made["declaration"]["problems"] == [f"{slug}@1" for slug in PROBLEMS]
    early = fair.api.get("/v1/tournaments/first/standings").json()["comparisons"][0]
    assert (early["verdict"], early["p_value"], early["difference"]["value"]) == ("unfinished", None, None)
    play(fair)
    done = fair.api.get("/v1/tournaments/first").json()
    assert (done["state"], done["started"], done["ended"]) == ("completed", 12, 12)
    assert done["finished_at"] is not None
    report = report_of(fair)
    assert (report["design"]["ended"], report["design"]["missing"], report["missing"]) == (12, 0, [])
    (comparison,) = report["standings"]["comparisons"]
    assert (comparison["a"], comparison["b"], comparison["pairs"], comparison["exact"]) == ("good", "bad", 6, True)
    assert "fewer than 30" in comparison["difference"]["note"]
    assert comparison["difference"]["low"] is None
    assert 0 < comparison["p_value"] <= 1
    (method,) = report["standings"]["methods"]
    assert (method["a"], method["b"], method["paired"], method["smallest_p"]) == ("good", "bad", True, 1.0)
    assert method["difference"] == comparison["difference"]["value"]
    assert "1 paired training seed cannot show a difference between methods" in method["note"]
    assert fair.api.get("/v1/tournaments/first/matrix").json() == report["matrix"]
    # The matrix agrees with the record of unlocks.
    unlocks = fair.api.get("/v1/unlocks", params={"policy": "good", "unlocks_only": True}).json()["items"]
    for row in report["matrix"]["rows"]:
        name = row["problem"].partition("@")[0]
        assert row["successes"] == [0, sum(unlock["problem"] == name for unlock in unlocks)]
    assert sum(row["successes"][1] for row in report["matrix"]["rows"]) == len(unlocks) > 0
    assert [cost["evaluations"] for cost in report["costs"]] == [42, 42]
    assert [cost["tokens"] > 0 for cost in report["costs"]] == [True, True]


def test_pairs_start_together_seed_by_seed(fair: Lab) -> None:
    declare(fair)
    play(fair)
    order = [
        (p, s, e) for p, s, e in rows_of(fair, "SELECT problem, seed, entrant FROM tournament_runs ORDER BY run_id")
    ]
    wanted = [(f"{p}@1", s, e) for s in (3, 4) for p in PROBLEMS for e in ("bad", "good")]
    assert order == wanted


def test_report_is_independent_of_the_order_of_results(fair: Lab) -> None:
    reports = []
    for seed in range(2):
        # The name is part of the seed of the resamples: the same declaration must run again from scratch.
        with fair.stores.engine.begin() as connection:
            connection.execute(text("TRUNCATE tournaments, runs, idempotency_keys CASCADE"))
        declare(fair)
        play(fair, order=Random(seed))
        reports.append(report_of(fair))
    assert reports[0] == reports[1]


def test_controller_killed_at_any_step_reports_the_same(fair: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    declare(fair)
    play(fair)
    undisturbed = report_of(fair)
    with fair.stores.engine.begin() as connection:
        connection.execute(text("TRUNCATE tournaments, runs, idempotency_keys CASCADE"))
    declare(fair)
    store, chance = type(fair.stores.tournaments), Random(0)

    def dying(owner: type, method: str) -> Any:
        original = getattr(owner, method)

        def call(*args: Any, **kwargs: Any) -> Any:
            # The process ends before the call takes effect; for ``attach`` this is after the run was created.
            if chance.random() < 0.3:
                raise Killed
            return original(*args, **kwargs)

        return call

    runs = type(fair.stores.runs)
    for owner, method in ((store, "attach"), (runs, "start"), (RunSummaries, "record_ended"), (store, "complete")):
        monkeypatch.setattr(owner, method, dying(owner, method))
    for _ in range(400):
        with suppress(Killed):
            TournamentController().run(fair.stores)
        for waiting in fair.stores.runs.work_in_flight(limit=20):
            perform(fair.stores, waiting.work_id)
        if not fair.stores.tournaments.pending():
            break
    assert fair.api.get("/v1/tournaments/first").json()["state"] == "completed"
    assert rows_of(fair, "SELECT count(*) FROM runs")[0][0] == 12
    assert report_of(fair) == undisturbed


@pytest.mark.parametrize(("method", "state"), [("attach", "created"), ("start", "cancelled")])
def test_a_run_whose_worker_was_killed_does_not_outlive_its_tournament(
    fair: Lab, monkeypatch: pytest.MonkeyPatch, method: str, state: str
) -> None:
    declare(fair)
    owner = type(fair.stores.tournaments if method == "attach" else fair.stores.runs)
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, Mock(side_effect=Killed))
        with pytest.raises(Killed):
            TournamentController().run(fair.stores)
    assert fair.api.post("/v1/tournaments/first:cancel").status_code == 200
    fair.stores.work.reconcile()
    play(fair, passes=3, units=0)
    assert rows_of(fair, "SELECT state FROM run_progress") == [(state,)]


def test_a_run_that_another_leader_started_does_not_pause_its_tournament(
    fair: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(fair)
    with monkeypatch.context() as patch:
        patch.setattr(type(fair.stores.tournaments), "attach", Mock(side_effect=Killed))
        with pytest.raises(Killed):
            TournamentController().run(fair.stores)
    fair.stores.runs.start(rows_of(fair, "SELECT id FROM runs")[0][0])
    TournamentController().run(fair.stores)
    assert rows_of(fair, "SELECT state, reason FROM tournaments") == [("running", None)]


NEWER = """UPDATE tournaments SET declaration = declaration || '{"tomorrow": 1}' WHERE slug = 'first'"""
UNKNOWN_ENTRANT = """UPDATE tournament_runs SET entrant = 'x' || ord FROM tournaments t
    WHERE t.id = tournament_id AND slug = 'first'"""


@pytest.mark.parametrize("harm", [NEWER, UNKNOWN_ENTRANT], ids=["newer", "unknown_entrant"])
def test_a_broken_tournament_keeps_no_other_from_starting(fair: Lab, harm: str) -> None:
    declare(fair)
    declare(fair, slug="second")
    with fair.stores.engine.begin() as connection:
        connection.execute(text(harm))
    TournamentController().run(fair.stores)
    states = "SELECT slug, state, reason FROM tournaments ORDER BY slug"
    assert rows_of(fair, states) == [("first", "running", None), ("second", "running", None)]
    assert rows_of(fair, "SELECT count(*) FROM runs")[0][0] == 12


def test_a_failed_part_of_a_pass_holds_up_no_other_and_a_database_that_is_away_ends_it(
    fair: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    declare(fair)
    errors = [OperationalError("SELECT 1", {}, Exception("gone")), UnavailableError("gone"), KeyError("broken")]

    def fail(*_: object) -> None:
        raise errors.pop(0)

    monkeypatch.setattr(reconciler, "recover", fail)
    monkeypatch.setattr(reconciler._retention, "run", lambda *_: None)
    for error in (OperationalError, UnavailableError):
        with pytest.raises(error):
            reconciler._one_pass(fair.stores, busy=True)
    assert rows_of(fair, "SELECT count(*) FROM runs")[0][0] == 0
    reconciler._one_pass(fair.stores, busy=True)
    assert rows_of(fair, "SELECT count(*) FROM runs")[0][0] == 12


def test_runs_follow_pause_resume_and_cancel(fair: Lab) -> None:
    declare(fair)
    controller = TournamentController()
    controller.run(fair.stores)
    states = "SELECT state, count(*) FROM run_progress GROUP BY state ORDER BY state"
    assert rows_of(fair, states) == [("running", 12)]
    by_hand = fair.api.get("/v1/runs").json()["items"][0]["id"]
    fair.api.post(f"/v1/runs/{by_hand}:pause", {"reason": "mine"})
    assert fair.api.post("/v1/tournaments/first:pause", {"reason": "lunch"}).json()["reason"] == "lunch"
    controller.run(fair.stores)
    assert rows_of(fair, states) == [("paused", 12)]
    refused(fair.api.post("/v1/tournaments/first:pause"), 409, "conflict")
    assert fair.api.post("/v1/tournaments/first:resume").json()["state"] == "running"
    controller.run(fair.stores)
    assert rows_of(fair, states) == [("running", 12)]
    assert fair.api.post("/v1/tournaments/first:cancel").json()["state"] == "cancelled"
    controller.run(fair.stores)
    assert rows_of(fair, states) == [("cancelled", 12)]
    controller.run(fair.stores)
    assert fair.stores.tournaments.pending() == ()
    details = refused(fair.api.post("/v1/tournaments/first:resume"), 409, "conflict")
    assert details["detail"] == "tournament 'first' is cancelled and cannot become running: it has ended."
    report = report_of(fair)
    assert report["design"]["missing"] == 12
    assert {run["reason"] for run in report["missing"]} == {"cancelled: tournament first is cancelled"}


def test_an_endpoint_that_refuses_every_prompt_loses_nothing(fair: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = ScriptedPolicy._answer

    def refuse(policy: ScriptedPolicy, request: SampleRequest) -> SampleResult:
        completion = Completion("it answered 400", finish_reason="refused")
        return SampleResult((completion,)) if policy._options.completions == tuple(BAD) else answer(policy, request)

    monkeypatch.setattr(ScriptedPolicy, "_answer", refuse)
    declare(fair, budget={"evaluations": 4})  # too few answers for the rule that names a number
    play(fair, passes=20)
    record = fair.api.get("/v1/tournaments/first").json()
    assert (record["state"], record["ended"]) == ("paused", 6)
    assert "6 of its runs are paused, the first one for: no prompt was accepted (3 in a row)" in record["reason"]
    fair.api.post("/v1/tournaments/first:resume")
    play(fair)
    report = report_of(fair)
    assert report["warnings"] == ["100% of the answers of bad@1 to bad were refused or could not be read."]


def test_tournament_without_progress_pauses_and_resumes_all_runs(fair: Lab) -> None:
    told = fair.stores.webhooks.add(Webhook(url="https://8.8.8.8/")).id
    declare(fair)
    controller = TournamentController()
    controller.run(fair.stores)
    runs = [run["id"] for run in fair.api.get("/v1/runs").json()["items"]]
    for run in runs[1:]:
        fair.api.post(f"/v1/runs/{run}:pause", {"reason": "the endpoint is gone"})
    controller.run(fair.stores)
    record = fair.api.get("/v1/tournaments/first").json()
    paused = "11 of its runs are paused, the first one for: the endpoint is gone"
    assert (record["state"], record["reason"]) == ("running", paused)
    fair.api.post(f"/v1/runs/{runs[0]}:pause", {"reason": "the endpoint is gone"})
    controller.run(fair.stores)
    stuck = fair.api.get("/v1/tournaments/first").json()
    assert stuck["state"] == "paused"
    assert stuck["reason"] == "no progress: 12 of its runs are paused, the first one for: the endpoint is gone"
    # The runs were paused by hand; the tournament pauses by itself, which is an alarm.
    data = {"name": "tournament.paused", "message": stuck["reason"], "tournament": "first"}
    asked = "SELECT event, data FROM webhook_deliveries"
    assert rows_of(fair, asked) == [("alarm", data)]
    (parcel,) = fair.stores.webhooks.claim(8)
    assert parcel.webhook_id == told
    links = json.loads(body_of(parcel, "http://speciate.example"))["links"]
    assert {fair.api.get(link.removeprefix("http://speciate.example")).status_code for link in links.values()} == {200}
    assert fair.api.post("/v1/tournaments/first:resume").json()["state"] == "running"
    play(fair)
    done = fair.api.get("/v1/tournaments/first").json()
    assert (done["state"], done["ended"]) == ("completed", 12)


def test_a_paused_tournament_whose_runs_have_all_ended_is_completed(fair: Lab) -> None:
    declare(fair)
    controller = TournamentController()
    controller.run(fair.stores)
    runs = [run["id"] for run in fair.api.get("/v1/runs").json()["items"]]
    for run in runs:
        fair.api.post(f"/v1/runs/{run}:pause", {"reason": "the endpoint is gone"})
    controller.run(fair.stores)
    for run in runs[1:]:
        fair.api.post(f"/v1/runs/{run}:cancel", {"reason": "it is gone for good"})
    controller.run(fair.stores)
    record = fair.api.get("/v1/tournaments/first").json()
    assert (record["state"], record["ended"]) == ("paused", 11)
    fair.api.post(f"/v1/runs/{runs[0]}:cancel", {"reason": "it is gone for good"})
    # The worker dies after it has recorded the run.
    fair.stores.tournaments.summaries.record_ended(fair.stores.tournaments.get("first"))
    controller.run(fair.stores)
    record = fair.api.get("/v1/tournaments/first").json()
    assert (record["state"], record["reason"], record["ended"]) == ("completed", None, 12)
    assert fair.stores.tournaments.pending() == ()


def test_an_empty_list_of_runs_leads_to_those_of_tournaments(fair: Lab) -> None:
    declared = declare(fair)
    TournamentController().run(fair.stores)
    by_id, by_name = (fair.api.get(f"/v1/runs?group={name}").json()["items"] for name in (declared["id"], "first"))
    assert [run["id"] for run in by_id] == [run["id"] for run in by_name] != []
    (link,) = re.findall(r'left out: <a href="([^"]+)', fair.api.get("/runs?state=running").text)
    listed = fair.api.get(html.unescape(link)).text
    assert "state=running" in link
    assert "Compare selected" in listed
    assert "left out" not in fair.api.get("/runs?state=failed&group=all").text


def test_run_that_cannot_start_pauses_the_tournament(fair: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise InvalidInputError("the strategy is gone.")

    declare(fair)
    monkeypatch.setattr("workers.tournaments.prepare_run", refuse)
    TournamentController().run(fair.stores)
    paused = fair.api.get("/v1/tournaments/first").json()
    assert (paused["state"], paused["reason"]) == ("paused", "a run cannot start or continue: the strategy is gone.")


def test_missing_run_excludes_its_pair_and_is_counted(fair: Lab) -> None:
    declare(fair)
    TournamentController().run(fair.stores)
    (run,) = rows_of(fair, "SELECT run_id FROM tournament_runs WHERE ord = 1")
    fair.api.post(f"/v1/runs/{run[0]}:cancel", {"reason": "a mishap"})
    play(fair)
    report = report_of(fair)
    (comparison,) = report["standings"]["comparisons"]
    assert (comparison["pairs"], comparison["missing_pairs"]) == (5, 1)
    assert report["missing"] == [{"entrant": "bad", "problem": "toy@1", "seed": 3, "reason": "cancelled: a mishap"}]
    assert fair.api.get("/v1/tournaments/first").json()["state"] == "completed"


def test_extension_is_an_amendment_and_makes_the_tests_exploratory(fair: Lab) -> None:
    declare(fair, problems=["toy", "toy-b"])
    play(fair)
    before = report_of(fair)["standings"]["comparisons"][0]
    assert before["verdict"] != "exploratory"
    extended = fair.api.post("/v1/tournaments/first:extend", {"problems": ["toy-c"], "seeds": [9], "reason": "power"})
    assert extended.status_code == 200, extended.text
    assert (extended.json()["state"], extended.json()["planned"]) == ("running", 18)
    assert extended.json()["amendments"][0]["ended_runs"] == 8
    play(fair)
    report = report_of(fair)
    assert (report["design"]["ended"], report["design"]["seeds"]) == (18, [3, 4, 9])
    assert report["design"]["amendments"][0]["extension"]["reason"] == "power"
    assert report["standings"]["comparisons"][0]["verdict"] == "exploratory"
    refused(fair.api.post("/v1/tournaments/first:extend", {"seeds": [9], "reason": "x"}), 409, "conflict")
    refused(fair.api.post("/v1/tournaments/first:extend", {"reason": "x"}), 422, "invalid-input")
    refused(fair.api.post("/v1/tournaments/first:extend", {"problems": ["no"], "reason": "x"}), 404, "not-found")


def test_e_process_ends_the_tournament_and_ignores_later_results(fair: Lab) -> None:
    slugs = [f"toy-{i}" for i in range(12)]
    for slug in slugs:
        fair.stores.catalog.add_problem(toy_problem().model_copy(update={"slug": slug}))
    entrants = [{**entrant, "batch": 25, "samples_per_prompt": 25} for entrant in body()["entrants"]]
    changes = {"entrants": entrants, "budget": {"evaluations": 25}, "alpha": 0.3, "seeds": [1]}
    declare(fair, problems=slugs, stopping="e_process", **changes)
    play(fair, units=10)
    done = fair.api.get("/v1/tournaments/first").json()
    assert done["state"] == "completed"
    report = report_of(fair)
    decided = report["design"]["decided_after"]
    assert done["reason"] == f"every comparison was decided after {decided} problems"
    assert 0 < decided < 12
    assert len(report["matrix"]["rows"]) == decided
    (comparison,) = report["standings"]["comparisons"]
    assert (comparison["verdict"], comparison["p_value"], comparison["e_problems"]) == ("better", None, decided)
    assert comparison["e_value"] >= comparison["e_threshold"]
    extension = {"problems": ["toy"], "reason": "more"}
    assert "was decided" in refused(fair.api.post("/v1/tournaments/first:extend", extension), 409, "conflict")["detail"]


def test_versions_are_pinned(fair: Lab) -> None:
    declare(fair)
    TournamentController().run(fair.stores)
    fair.stores.catalog.add_policy(toy_policy(slug="good", options={"completions": BAD}))
    play(fair)
    assert {row[0] for row in rows_of(fair, "SELECT DISTINCT policy_version FROM (SELECT a.version AS policy_version"
                                    " FROM runs r JOIN policies a ON a.id = r.policy_id) v")} == {1}  # fmt: skip
    assert [policy["name"] for policy in report_of(fair)["design"]["policies"]] == ["bad@1", "good@1"]


def test_the_form_shows_what_a_tournament_takes_before_it_starts(fair: Lab) -> None:
    form = {"slug": "few", "problems": "toy", "policies": "bad good", "seeds": "2", "budget.evaluations": "7"}
    own = {"Origin": str(fair.api.http.base_url).rstrip("/")}
    asked = fair.api.http.post("/tournaments", data=form, headers=own)
    assert asked.status_code == 200
    assert "1 problem cannot decide any comparison: expected at least 7." in asked.text
    start = re.search(r'name="confirmed" value="(\w+)">Start 8 runs<', asked.text)
    assert start is not None
    assert fair.api.get("/v1/tournaments").json()["items"] == []
    # Other fields than those of the plan show the new plan.
    changed = fair.api.http.post("/tournaments", data=form | {"seeds": "3", "confirmed": start[1]}, headers=own)
    assert "Start 12 runs" in changed.text
    begun = fair.api.http.post("/tournaments", data=form | {"confirmed": start[1]}, headers=own)
    assert begun.status_code == 303
    entrants = fair.api.get("/v1/tournaments/few").json()["declaration"]["entrants"]
    assert [entrant["name"] for entrant in entrants] == [
        "bad-independent", "good-independent", "bad-evolved", "good-evolved",
    ]  # fmt: skip


def test_the_form_takes_a_whole_declaration(fair: Lab) -> None:
    own = {"Origin": str(fair.api.http.base_url).rstrip("/")}
    wrong = fair.api.http.post("/tournaments", data={"declaration": "slug = x"}, headers=own)
    assert "is not TOML" in wrong.text
    entrant = '[[entrants]]\nname = "{0}"\npolicy = "{0}"\nstrategy = "best_of_n"\n'
    text = 'slug = "written"\nproblems = ["toy"]\nbaseline = "bad"\nbudget = { evaluations = 7 }\n'
    text += "".join(map(entrant.format, ("bad", "good")))
    asked = fair.api.http.post("/tournaments", data={"declaration": text}, headers=own)
    assert "Start 16 runs" in asked.text


def test_equal_declaration_is_the_same_tournament(fair: Lab) -> None:
    first = declare(fair)
    assert declare(fair)["id"] == first["id"]
    details = refused(fair.api.post("/v1/tournaments", body(seeds=[5])), 409, "conflict")
    assert "choose another name" in details["detail"]
    key = {"Idempotency-Key": "k"}
    other = fair.api.post("/v1/tournaments", body(slug="other"), headers=key)
    assert fair.api.post("/v1/tournaments", body(slug="other"), headers=key).json()["id"] == other.json()["id"]
    refused(fair.api.post("/v1/tournaments", body(slug="third"), headers=key), 409, "conflict")
    listed = fair.api.get("/v1/tournaments", params={"state": "running"}).json()["items"]
    assert [item["slug"] for item in listed] == ["other", "first"]
    slug = "550e8400-e29b-41d4-a716-446655440000"
    assert declare(fair, slug=slug)["id"] == declare(fair, slug=slug)["id"]
    assert fair.api.post("/v1/problems/toy:archive").status_code == 200
    assert fair.api.post("/v1/tournaments", body(slug="other"), headers=key).json()["id"] == other.json()["id"]


def test_no_key_of_a_client_takes_a_run_of_a_tournament(fair: Lab) -> None:
    declared = declare(fair)["id"]
    stored = {"problem": "toy", "policy": "good", "budget": {"evaluations": 5}}
    for ordinal in range(3):
        key = {"Idempotency-Key": f"tournament:{declared}:{ordinal}"}
        assert fair.api.post("/v1/runs", stored, headers=key).status_code == 202
    play(fair)
    assert fair.api.get(f"/v1/tournaments/{declared}").json()["state"] == "completed"


REFUSED = [
    ({"entrants": []}, "", "at least 2"),
    ({"entrants": [{"name": "a", "policy": "good"}], "baseline": "a"}, "", "at least 2"),
    ({"baseline": "unknown"}, "", "baseline 'unknown' is not an entrant"),
    ({"budget": {"tokens": 5}}, "", "seconds depend"),
    ({"problems": ["toy", "toy@1"]}, "problems", "named twice"),
    ({"problems": []}, "problems", ""),
    ({"target": "nowhere"}, "problems.0", "expected one of half, both"),
    ({"metric": "beauty"}, "metric", ""),
    ({"seeds": [1, 1]}, "", "seed 1 is named twice"),
]


def test_invalid_declarations(fair: Lab) -> None:
    for changes, where, message in REFUSED:
        details = refused(fair.api.post("/v1/tournaments", body(**changes)), 422, "invalid-input")
        assert message in details["detail"]
        assert where in details["errors"][0]["where"]
        assert fair.api.get("/v1/tournaments").json()["items"] == []


def test_duplicate_runs_with_other_seeds_and_is_no_comparison(fair: Lab) -> None:
    planted = [*body()["entrants"], {"name": "null", "duplicate_of": "good"}]
    made = declare(fair, entrants=planted)
    assert made["declaration"]["entrants"][2]["policy"] == "good@1"
    play(fair)
    lines = [json.loads(line) for line in fair.api.get("/v1/tournaments/first/export").text.splitlines()]
    seeds = {line["entrant"]: set() for line in lines}
    for line in lines:
        seeds[line["entrant"]].add(fair.api.get(f"/v1/runs/{line['run_id']}").json()["spec"]["seed"])
    assert seeds["good"] == seeds["bad"] == {3, 4}
    assert len(seeds["null"] - {3, 4}) == 2
    standings = report_of(fair)["standings"]
    assert [(c["a"], c["b"]) for c in standings["comparisons"]] == [("good", "bad")]
    assert [(c["a"], c["b"], c["pairs"]) for c in standings["nulls"]] == [("null", "good", 6)]
    assert fair.api.get("/tournaments/first?tab=comparisons").status_code == 200


def test_invalid_entrants(fair: Lab) -> None:
    entrants = body()["entrants"]
    unequal = [entrants[0], {**entrants[1], "budget": {"evaluations": 9}}]
    details = refused(fair.api.post("/v1/tournaments", body(entrants=unequal)), 422, "invalid-input")
    assert "no budget of its own" in details["detail"]
    assert details["errors"][0]["where"] == "entrants.1"
    unknown = [entrants[0], {**entrants[1], "strategy": "wishing"}]
    details = refused(fair.api.post("/v1/tournaments", body(entrants=unknown)), 422, "invalid-input")
    assert details["errors"][0]["where"] == "entrants.1.strategy"
    equal = [entrants[0], {**entrants[0], "name": "copy", "policy": "bad@1"}]
    details = refused(fair.api.post("/v1/tournaments", body(entrants=equal)), 422, "invalid-input")
    assert details["errors"][0]["where"] == "entrants.1"
    assert "'copy' is 'bad' by another name" in details["detail"]
    runs = [{**entrants[0], "training_seed": 1, "method": "a"}, {**entrants[1], "training_seed": 1, "method": "b"}]
    again = {**runs[0], "name": "copy", "policy": "bad@1", "training_seed": 2}
    details = refused(fair.api.post("/v1/tournaments", body(entrants=[*runs, again])), 422, "invalid-input")
    assert "'copy' is 'bad' by another name" in details["detail"]
    for slug in ("one", "same"):
        fair.stores.catalog.add_policy(toy_policy(slug=slug, checkpoint_digest="sha"))
    same = [{**runs[0], "name": slug, "policy": slug, "training_seed": i} for i, slug in enumerate(("one", "same"))]
    declared = body(entrants=[*same, runs[1]], baseline="one")
    details = refused(fair.api.post("/v1/tournaments", declared), 422, "invalid-input")
    assert details["errors"][0]["where"] == "entrants.1.policy"
    assert "'same' and 'one' are one training run of method 'a'" in details["detail"]
    missing = [entrants[0], {**entrants[1], "policy": "unknown"}]
    refused(fair.api.post("/v1/tournaments", body(entrants=missing)), 404, "not-found")
    refused(fair.api.get(f"/v1/tournaments/{uuid4()}/report"), 404, "not-found")
    refused(fair.api.post("/v1/tournaments/none:pause"), 404, "not-found")
