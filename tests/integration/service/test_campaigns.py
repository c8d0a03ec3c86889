"""Tests of campaigns: declared over HTTP, reconciled by the controller, every decision stored."""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from speciate.cli.runs.replay import replay_run
from speciate.domain.webhook import Webhook
from speciate.policies import build_client
from speciate.runs.executor import WorkExecutor
from speciate.storage.stores import Stores
from tests.integration.service.conftest import Lab, refused
from tests.support.runs import ToyEvaluator, toy_policy, toy_problem
from workers.campaigns import CampaignController

pytestmark = pytest.mark.servers

# The policy's answers solve the first problem at once and the last one never.
RULES = {"easy": "x >= 8 and y <= 8", "rare": "x >= 8 and y <= 2", "never": "x >= 10"}
ANSWERS = [f"```python\nx = {x}\ny = {9 - x if x < 9 else 9}\n```" for x in range(10)] * 3
RARE = ["```python\nx = 8\ny = 2\n```"]


def _body(**changes: Any) -> dict[str, Any]:
    return {
        "slug": "first",
        "problems": list(RULES),
        "policy": "guesser",
        "strategy": "best_of_n",
        "batch": 2,
        "samples_per_prompt": 1,
        "evaluations": 61,
        "slice": 5,
        "parallel": 2,
        "seed": 3,
        **changes,
    }


@pytest.fixture
def fair(lab: Lab) -> Lab:
    for slug, rule in RULES.items():
        problem = toy_problem()
        half, both = problem.targets
        changes = {"slug": slug, "targets": (half, both.model_copy(update={"rule": rule}))}
        lab.stores.catalog.add_problem(problem.model_copy(update=changes))
    options = {"completions": ANSWERS + RARE, "order": "seed"}
    lab.stores.catalog.add_policy(toy_policy(slug="guesser", options=options))
    return lab


def _declare(lab: Lab, **changes: Any) -> dict[str, Any]:
    answer = lab.api.post("/v1/campaigns", _body(**changes))
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def _perform(stores: Stores, work_id: UUID) -> None:
    executor = WorkExecutor(stores.work, stores.signals, ToyEvaluator(), build_client)
    assert executor.execute(work_id)


def _play(lab: Lab, *, order: Random | None = None, passes: int = 200, units: int = 4) -> dict[str, Any]:
    """Reconcile and work in turns until nothing is pending; ``order`` picks the next unit, else the oldest one."""
    controller = CampaignController()
    for _ in range(passes):
        controller.run(lab.stores)
        for _ in range(units):
            if waiting := lab.stores.runs.work_in_flight():
                _perform(lab.stores, (order.choice(waiting) if order else waiting[0]).work_id)
        if not lab.stores.campaigns.pending():
            break
    return _get(lab)


def _get(lab: Lab, name: str = "first") -> dict[str, Any]:
    return dict(lab.api.get(f"/v1/campaigns/{name}").json())


def _slices(lab: Lab) -> list[dict[str, Any]]:
    """Return the decisions of all pages, oldest first, without their times."""
    path, items, cursor = "/v1/campaigns/first/slices", [], None
    while True:
        page = lab.api.get(path, params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        items += [{**item, "created_at": None} for item in page["items"]]
        if (cursor := page["next_cursor"]) is None:
            return items[::-1]


def _rows(lab: Lab, query: str) -> list[Any]:
    with lab.stores.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def _forget(lab: Lab) -> None:
    with lab.stores.engine.begin() as connection:
        connection.execute(text("TRUNCATE campaigns, runs, idempotency_keys CASCADE"))


def test_whole_budget_goes_to_open_problems(fair: Lab) -> None:
    made = _declare(fair)
    assert (made["state"], made["spent"], made["slices"]) == ("running", 0, 0)
    assert [p["problem"] for p in made["problems"]] == ["easy@1", "rare@1", "never@1"]
    assert (made["declaration"]["policy"], made["problems"][0]["chance"]) == ({"guesser@1": 1.0}, 0.5)
    done = _play(fair)
    assert (done["state"], done["reason"]) == ("completed", "all 61 evaluations are spent")
    assert done["spent"] == 61 == sum(row[0] for row in _rows(fair, "SELECT evaluations FROM run_progress"))
    easy, _, never = done["problems"]
    assert (easy["unlocked"], easy["chance"], never["unlocked"], never["chance"]) == (True, 0.0, False, 0.0)
    assert easy["spent"] < 20 < never["spent"]
    assert {p["state"] for p in done["problems"]} == {"completed"}
    assert never["reason"] == "campaign first is completed"
    # The record of unlocks agrees with the campaign.
    unlocks = fair.api.get("/v1/unlocks", params={"unlocks_only": True}).json()["items"]
    assert {u["problem"] for u in unlocks} == {
        p["problem"].partition("@")[0] for p in done["problems"] if p["unlocked"]
    }
    assert done["unlocked"] == len(unlocks)
    assert fair.api.get("/v1/campaigns").json()["items"][0] == {**done, "problems": []}


def test_decisions_are_stored_with_evidence_and_result(fair: Lab) -> None:
    _declare(fair)
    done = _play(fair)
    slices = _slices(fair)
    assert [each["ord"] for each in slices] == list(range(1, done["slices"] + 1))
    assert sum(each["spent"] for each in slices) == 61
    assert {each["chance"] == pytest.approx(1 / (each["gap"] + 2)) for each in slices} == {True}
    for problem in done["problems"]:
        mine = [each for each in slices if each["problem"] == problem["problem"]]
        assert sum(each["spent"] for each in mine) == problem["spent"]
        assert [name for each in mine for name in each["reached"]] == problem["reached"]
        assert len(mine) == problem["slices"]
        assert mine[-1]["closed"] == ("unlocked" if problem["unlocked"] else None)
    assert {each["gap"] for each in slices[:3]} == {0}


def test_decisions_are_independent_of_order_and_pace(fair: Lab) -> None:
    decisions = []
    for order, units in ((None, 4), (Random(0), 1), (Random(1), 9)):
        _forget(fair)
        _declare(fair)
        _play(fair, order=order, units=units)
        decisions.append(_slices(fair))
    assert decisions[0] == decisions[1] == decisions[2]


def test_controller_killed_at_any_step_spends_the_same(fair: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    _declare(fair)
    _play(fair)
    undisturbed = _slices(fair)
    _forget(fair)
    _declare(fair)
    chance = Random(0)

    class Killed(BaseException):
        pass

    def dying(owner: type, method: str) -> None:
        original = getattr(owner, method)

        def call(*args: Any, **kwargs: Any) -> Any:
            # The process ends before the call takes effect, or right after it.
            if (draw := chance.random()) < 0.15:
                raise Killed
            answer = original(*args, **kwargs)
            if draw < 0.3:
                raise Killed
            return answer

        monkeypatch.setattr(owner, method, call)

    for method in ("attach", "settle", "decide", "complete"):
        dying(type(fair.stores.campaigns), method)
    for method in ("create", "start", "grant", "close"):
        dying(type(fair.stores.runs), method)
    for _ in range(600):
        with suppress(Killed):
            CampaignController().run(fair.stores)
        for waiting in fair.stores.runs.work_in_flight(limit=3):
            _perform(fair.stores, waiting.work_id)
        if not fair.stores.campaigns.pending():
            break
    assert _get(fair)["state"] == "completed"
    assert _slices(fair) == undisturbed
    assert _rows(fair, "SELECT count(*), sum(evaluations) FROM run_progress") == [(3, 61)]


def test_fixed_shares_differ_by_at_most_one_evaluation(fair: Lab) -> None:
    _declare(fair, mode="fixed", problems=["never", "rare", "easy"], parallel=1)
    done = _play(fair)
    assert [each["evaluations"] for each in _slices(fair)] == [21, 20, 20]
    assert done["problems"][0]["spent"] == 21
    assert done["state"] == "completed"
    assert done["reason"] == f"every problem had its share; {done['spent']} of 61 evaluations are spent"


def test_campaign_completes_when_every_problem_is_closed(fair: Lab) -> None:
    _declare(fair, problems=["easy"], evaluations=500)
    done = _play(fair)
    assert done["state"] == "completed"
    assert done["reason"] == f"no problem takes more; {done['spent']} of 500 evaluations are spent"
    assert done["spent"] < 500


def test_the_run_of_a_campaign_that_unlocked_its_problem_is_replayed(fair: Lab) -> None:
    made = _declare(fair, problems=["easy"], evaluations=500)
    _play(fair)
    (run,) = fair.stores.campaigns.get(UUID(made["id"])).problems
    assert run.run_id is not None
    assert replay_run(fair.stores, run.run_id, ToyEvaluator()).identical


def test_the_best_program_of_a_noisy_problem_is_evaluated_after_the_end_of_its_campaign(fair: Lab) -> None:
    problem = fair.stores.catalog.problem("never").definition
    fair.stores.catalog.add_problem(problem.model_copy(update={"slug": "noisy", "stochastic": True}))
    made = _declare(fair, problems=["noisy", "easy"])
    _play(fair)
    while waiting := fair.stores.runs.work_in_flight():
        _perform(fair.stores, waiting[0].work_id)
    run = fair.stores.campaigns.get(UUID(made["id"])).problems[0].run_id
    assert run is not None
    record = fair.stores.runs.get(run)
    assert (record.state.value, record.reason) == ("completed", "campaign first is completed")
    assert record.best_rewards[0].margin == 0.0
    assert replay_run(fair.stores, run, ToyEvaluator()).identical


def test_a_campaign_whose_own_runs_fill_the_quota_waits_for_no_others(fair: Lab) -> None:
    fair.api.post("/v1/projects/default:quota", {"concurrent_runs": 1})
    _declare(fair, parallel=1)
    for _ in range(3):
        CampaignController().run(fair.stores)
        assert _get(fair)["reason"] is None


def test_runs_follow_pause_resume_and_cancel(fair: Lab) -> None:
    _declare(fair)
    controller = CampaignController()
    controller.run(fair.stores)
    states = "SELECT state, count(*) FROM run_progress GROUP BY state ORDER BY state"
    assert _rows(fair, states) == [("running", 2)]
    assert fair.api.post("/v1/campaigns/first:pause", {"reason": "lunch"}).json()["reason"] == "lunch"
    controller.run(fair.stores)
    assert _rows(fair, states) == [("paused", 2)]
    refused(fair.api.post("/v1/campaigns/first:pause"), 409, "conflict")
    assert fair.api.post("/v1/campaigns/first:resume").json()["state"] == "running"
    controller.run(fair.stores)
    assert _rows(fair, states) == [("running", 2)]
    _perform(fair.stores, fair.stores.runs.work_in_flight()[0].work_id)
    assert fair.api.post("/v1/campaigns/first:cancel").json()["state"] == "cancelled"
    for _ in range(3):
        controller.run(fair.stores)
    assert _rows(fair, states) == [("cancelled", 2)]
    assert fair.stores.campaigns.pending() == ()
    assert [(each["spent"], each["closed"]) for each in _slices(fair)] == [
        (1, "its run is cancelled: campaign first is cancelled"),
        (0, "its run is cancelled: campaign first is cancelled"),
    ]
    details = refused(fair.api.post("/v1/campaigns/first:resume"), 409, "conflict")
    assert details["detail"] == "campaign 'first' is cancelled and cannot become running: it has ended."


def test_a_cancelled_campaign_closes_slices_whose_run_has_not_started(fair: Lab) -> None:
    fair.api.post("/v1/projects/default:quota", {"concurrent_runs": 1})
    _declare(fair)
    CampaignController().run(fair.stores)
    fair.api.post("/v1/campaigns/first:cancel")
    for _ in range(3):
        CampaignController().run(fair.stores)
    assert fair.stores.campaigns.pending() == ()
    cancelled, waiting = ((each["spent"], each["closed"]) for each in _slices(fair))
    assert cancelled == (0, "its run is cancelled: campaign first is cancelled")
    assert waiting == (0, "its run is not started")


def test_campaign_without_progress_pauses_and_resumes_all_runs(fair: Lab) -> None:
    fair.stores.webhooks.add(Webhook(url="https://8.8.8.8/"))
    _declare(fair)
    controller = CampaignController()
    controller.run(fair.stores)
    by_hand = fair.api.get("/v1/runs").json()["items"][0]["id"]
    fair.api.post(f"/v1/runs/{by_hand}:pause", {"reason": "its answers repeat"})
    controller.run(fair.stores)
    reason = "1 of its runs is paused, the first one for: its answers repeat"
    assert (_get(fair)["state"], _get(fair)["reason"]) == ("running", reason)
    # The other runs spend their slices, then wait for grants, which wait for the outcome of the paused one.
    while (stuck := _get(fair))["state"] == "running" and stuck["spent"] < 61:
        for unit in fair.stores.runs.work_in_flight():
            if str(unit.run_id) != by_hand:
                _perform(fair.stores, unit.work_id)
        controller.run(fair.stores)
    assert (stuck["state"], stuck["reason"]) == ("paused", f"no progress: {reason}")
    told = {"name": "campaign.paused", "message": stuck["reason"], "campaign": "first"}
    assert _rows(fair, "SELECT event, data FROM webhook_deliveries") == [("alarm", told)]
    assert fair.api.post("/v1/campaigns/first:resume").json()["state"] == "running"
    done = _play(fair)
    assert (done["state"], done["reason"]) == ("completed", "all 61 evaluations are spent")


def test_cancelled_run_leaves_its_evaluations_to_the_others(fair: Lab) -> None:
    _declare(fair, problems=["rare", "never"])
    CampaignController().run(fair.stores)
    by_hand = next(p["run_id"] for p in _get(fair)["problems"] if p["problem"] == "rare@1")
    fair.api.post(f"/v1/runs/{by_hand}:cancel", {"reason": "mine"})
    done = _play(fair)
    assert [p["spent"] for p in done["problems"]] == [0, 61]
    assert (done["state"], done["problems"][0]["reason"]) == ("completed", "mine")
    assert next(each["closed"] for each in _slices(fair) if each["closed"]) == "its run is cancelled: mine"


def test_problem_set_and_ensemble(fair: Lab) -> None:
    fair.stores.catalog.add_problem_set("toys", "", fair.stores.catalog.problem_ids(["easy", "never"]))
    other = toy_policy(slug="other", options={"completions": ANSWERS})
    fair.stores.catalog.add_policy(other)
    made = _declare(fair, problems=["set:toys"], policy={"guesser": 1, "other": 3}, evaluations=30)
    assert made["declaration"]["problems"] == ["easy@1", "never@1"]
    assert made["declaration"]["policy"] == {"guesser@1": 1.0, "other@1": 3.0}
    done = _play(fair)
    assert done["spent"] == 30
    run = fair.api.get(f"/v1/runs/{done['problems'][1]['run_id']}").json()
    asked = [(member["policy"], member["weight"]) for member in run["ensembles"] if member["role"] == "propose"]
    assert (run["policy"], asked) == ("guesser", [("guesser", 1.0), ("other", 3.0)])


def test_idempotency_key(fair: Lab) -> None:
    key = {"Idempotency-Key": "k"}
    made = [fair.api.post("/v1/campaigns", _body(), headers=key).json() for _ in range(2)]
    assert made[0]["id"] == made[1]["id"]
    refused(fair.api.post("/v1/campaigns", _body(slug="second"), headers=key), 409, "conflict")
    assert fair.api.post("/v1/campaigns", _body()).json()["id"] == made[0]["id"]
    assert fair.api.post("/v1/problems/easy:archive").status_code == 200
    assert fair.api.post("/v1/campaigns", _body(), headers=key).json()["id"] == made[0]["id"]
    assert fair.api.post("/v1/problems/easy:restore").status_code == 200
    details = refused(fair.api.post("/v1/campaigns", _body(seed=4)), 409, "conflict")
    assert details["detail"].startswith("there is already a campaign 'first' with another declaration.")


INVALID: list[tuple[dict[str, Any], int, str, str]] = [
    ({"problems": ["nothing"]}, 404, "not-found", "there is no problem 'nothing'"),
    ({"problems": ["set:nothing"]}, 404, "not-found", "there is no problem set 'nothing'"),
    ({"policy": "unknown"}, 404, "not-found", "there is no policy 'unknown'"),
    ({"problems": ["eazy"]}, 404, "not-found", "there is no problem 'eazy'. Did you mean 'easy'?"),
    ({"policy": "gueser@1"}, 404, "not-found", "there is no policy 'gueser@1'. Did you mean 'guesser'?"),
    ({"strategy": "best_of_m"}, 422, "invalid-input", "Did you mean 'best_of_n'?"),
    ({"evaluations": 0}, 422, "invalid-input", "greater than or equal to 1"),
    ({"evaluations": 14}, 422, "invalid-input", "expected at least 15, a slice of 5 for each of 3 problems"),
    ({"evaluations": 2, "mode": "fixed"}, 422, "invalid-input", "at least 3, one evaluation for each of 3"),
    ({"evaluations": 10**6}, 422, "invalid-input", "would be 200,000 slices: expected at least 50"),
    ({"mode": "greedy"}, 422, "invalid-input", "expected 'adaptive' or 'fixed'"),
    ({"problems": []}, 422, "invalid-input", "at least 1 item"),
    ({"slug": "own"}, 422, "invalid-input", "'own' is a keyword of the filter of runs"),
    ({"slug": "all"}, 422, "invalid-input", "'all' is a keyword of the filter of runs"),
    ({"problems": ["easy", "easy@1"]}, 422, "invalid-input", "named twice"),
    ({"policy": "external"}, 422, "invalid-input", "runs of a campaign take no proposals"),
    ({"policy": {"guesser": 1, "guesser@1": 1}}, 422, "invalid-input", "every policy once"),
    ({"strategy": "luck"}, 422, "invalid-input", "best_of_n"),
    ({"budget": {"evaluations": 9}}, 422, "invalid-input", "budget"),
]


def test_invalid_declarations(fair: Lab) -> None:
    for changes, status, kind, message in INVALID:
        details = refused(fair.api.post("/v1/campaigns", _body(**changes)), status, kind)
        assert message in str(details)
        assert _rows(fair, "SELECT count(*) FROM campaigns") == [(0,)]


def test_unknown_campaign(fair: Lab) -> None:
    for path in ("nothing", "nothing/slices"):
        refused(fair.api.get(f"/v1/campaigns/{path}"), 404, "not-found")
    refused(fair.api.post("/v1/campaigns/nothing:pause"), 404, "not-found")
