"""Campaigns whose runs train one policy: each run begins where the run before it ended, and no group is lost."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from speciate.domain.errors import LearningError
from speciate.domain.objective import ObjectiveRole
from speciate.runs.executor import WorkExecutor
from speciate.runs.learning import LearningState
from tests.integration.service.conftest import Lab, refused
from tests.support.runs import ToyEvaluator, toy_problem
from tests.unit.runs.test_learning import BASE, FakeLearner, Varied
from workers.campaigns import CampaignController
from workers.retention import prune_runs

pytestmark = pytest.mark.servers

RULES = {"never": "x >= 10", "single": "x >= 9.9", "soon": "x >= 0.7"}


@pytest.fixture
def school(lab: Lab) -> Lab:
    half, both = toy_problem().targets
    x, y = toy_problem().objectives
    for slug, rule in RULES.items():
        changes: dict[str, Any] = {"slug": slug, "targets": (half, both.model_copy(update={"rule": rule}))}
        if slug == "single":  # one reward, and no weights
            changes |= {"objectives": (x, y.model_copy(update={"role": ObjectiveRole.RECORD})), "weights": None}
        lab.stores.catalog.add_problem(toy_problem().model_copy(update=changes))
    lab.stores.catalog.add_policy(BASE)
    return lab


def body(**changes: Any) -> dict[str, Any]:
    return {
        "slug": "taught",
        "problems": list(RULES),
        "policy": "base",
        "strategy": "best_of_n",
        "batch": 16,
        "samples_per_prompt": 8,
        "evaluations": 483,
        "slice": 48,
        "learning": {"groups": 4},
        **changes,
    }


def declare(lab: Lab, **changes: Any) -> dict[str, Any]:
    answer = lab.api.post("/v1/campaigns", body(**changes))
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


def play(lab: Lab, learner: FakeLearner, *, passes: int = 60, units: int = 3) -> dict[str, Any]:
    """Reconcile and work in turns until the campaign has ended."""
    controller = CampaignController()
    executor = WorkExecutor(
        lab.stores.work, lab.stores.signals, ToyEvaluator(), lambda _: Varied(), learner_for=lambda: learner
    )
    for _ in range(passes):
        controller.run(lab.stores)
        for _ in range(units):
            if waiting := lab.stores.runs.work_in_flight(limit=1):
                executor.execute(waiting[0].work_id)
        if not lab.stores.campaigns.pending():
            break
    return dict(lab.api.get("/v1/campaigns/taught").json())


def states(lab: Lab) -> dict[UUID, LearningState]:
    query = text("SELECT r.run_id, p.learning FROM campaign_runs r JOIN run_progress p ON p.run_id = r.run_id")
    with lab.stores.engine.connect() as connection:
        return {run: LearningState.model_validate(found) for run, found in connection.execute(query)}


def check_books(lab: Lab, done: dict[str, Any]) -> None:
    """Every group of every run is in one place, and no step used one twice."""
    found = states(lab)
    for state in found.values():
        kept = state.used + state.flat + state.stale + state.dropped + state.passed + len(state.waiting)
        assert state.seen + state.received == kept + len(state.inside)
    assert sum(s.received for s in found.values()) == sum(s.passed for s in found.values())
    used: Counter[tuple[str, int, int]] = Counter()
    steps = lab.stores.campaigns.learning_steps(UUID(done["id"]))
    assert [step["step"] for step in steps] == list(range(1, done["learning"]["step"] + 1))
    for run in found:
        events = lab.api.get(f"/v1/runs/{run}/events?limit=500").json()["items"]
        for event in (e for e in events if e["kind"] == "learning.step"):
            used.update((owner or str(run), batch, first) for batch, first, owner in event["data"]["groups"])
    assert set(used.values()) <= {1}
    assert used.total() == done["learning"]["used"]


def test_every_run_begins_where_the_run_before_it_ended(school: Lab) -> None:
    made = declare(school)
    assert (made["declaration"]["parallel"], made["learning"]["step"]) == (1, 0)
    learner = FakeLearner()
    done = play(school, learner)
    assert (done["state"], done["spent"]) == ("completed", 483)
    found, name = done["learning"], f"base-{UUID(made['id']).hex[-12:]}"
    assert found["step"] == found["taken"] == len(learner.tasks) > 6
    assert (found["version"], found["campaign"]) == (f"{name}@{found['step']}", "taught")
    check_books(school, done)
    # One chain of versions over all runs, and steps that learn from groups of several runs.
    runs = {}
    for step in range(1, found["step"] + 1):
        lineage = school.api.get(f"/v1/policies/{name}@{step}").json()["definition"]["lineage"]
        assert (lineage["base"], lineage["campaign"]) == ("base@1", "taught")
        assert lineage["parent"] == ("base@1" if step == 1 else f"{name}@{step - 1}")
        runs[step] = lineage["run"]
    assert len(set(runs.values())) > 1
    assert any(len({group.weights for group in task.groups}) > 1 for task in learner.tasks)
    assert {len(g.rollouts[0].rewards[0]) for task in learner.tasks for g in task.groups} == {1, 2}
    # A run's record names the version of the campaign; its page and the campaign's show it.
    last = school.api.get(f"/v1/runs/{runs[found['step']]}").json()["learning"]
    assert (last["version"], last["campaign"]) == (found["version"], "taught")
    assert last["taken"] == sum(run == runs[found["step"]] for run in runs.values()) < found["step"]
    page = school.api.get("/campaigns/taught").text
    assert f"/policies/{found['version']}" in page
    assert "Learning curve" in page
    assert "campaign taught" in school.api.get(f"/policies/{name}@2").text
    assert school.api.get("/campaigns/taught/figures/learning.json").status_code == 200
    unlocks = school.api.get("/v1/unlocks").json()["items"]
    assert {unlock["learned"].partition("@")[0] for unlock in unlocks if unlock["learned"]} <= {name}


def test_a_repeated_or_interrupted_turn_moves_the_learner_once(school: Lab) -> None:
    made = declare(school)
    play(school, FakeLearner(), passes=7)
    record = school.stores.campaigns.get(UUID(made["id"]))
    first, second = [p.run_id for p in record.problems if p.run_id is not None][:2]
    holder = next(run for run, state in states(school).items() if state.campaign is not None and not state.passed)
    before = states(school)
    assert school.stores.campaigns.move_learner(record, holder) == ()
    assert states(school) == before
    assert {first, second} >= {holder}


def test_a_cancelled_run_leaves_its_step_to_the_next_one(school: Lab) -> None:
    declare(school)
    learner = FakeLearner()
    controller = CampaignController()
    executor = WorkExecutor(school.stores.work, school.stores.signals, ToyEvaluator(), lambda _: Varied())
    controller.run(school.stores)
    while not (learns := [w for w in school.stores.runs.work_in_flight() if w.kind == "learn"]):
        executor.execute(school.stores.runs.work_in_flight(limit=1)[0].work_id)
    school.stores.runs.cancel(learns[0].run_id)
    assert not school.api.get(f"/v1/runs/{learns[0].run_id}").json()["learning"]["busy"]
    assert prune_runs(school.stores, -1.0) == 0  # the next one learns from its completions
    done = play(school, learner)
    assert prune_runs(school.stores, -1.0) > 1
    assert done["state"] == "completed"
    check_books(school, done)
    cancelled = states(school)[learns[0].run_id]
    assert (cancelled.used, cancelled.inside) == (0, [])
    assert cancelled.passed >= 4
    assert {ref[2] for ref in school.stores.campaigns.learning_steps(UUID(done["id"]))[0]["groups"]} == {
        str(learns[0].run_id)
    }


def test_a_failed_step_ends_learning_of_the_campaign_and_not_the_campaign(school: Lab) -> None:
    declare(school)
    reason = "the loss of step 3 is not finite, so the step was undone."
    learner = FakeLearner({3: LearningError(reason)})
    done = play(school, learner)
    assert (done["state"], done["spent"]) == ("completed", 483)
    assert (done["learning"]["step"], done["learning"]["ended"]) == (2, reason)
    assert len(learner.tasks) == 3
    check_books(school, done)
    assert reason in school.api.get("/campaigns/taught").text


def test_pause_and_cancel_of_the_campaign(school: Lab) -> None:
    declare(school)
    play(school, FakeLearner(), passes=4)
    school.api.post("/v1/campaigns/taught:pause")
    paused = play(school, FakeLearner(), passes=6)
    assert paused["state"] == "paused"
    assert paused["spent"] < 483
    school.api.post("/v1/campaigns/taught:resume")
    resumed = play(school, FakeLearner(), passes=4)
    assert resumed["spent"] > paused["spent"]
    school.api.post("/v1/campaigns/taught:cancel")
    ended = play(school, FakeLearner(), passes=4)
    assert ended["state"] == "cancelled"
    check_books(school, ended)


def test_without_sharing_every_run_trains_its_own_policy(school: Lab) -> None:
    declare(school, learning_scope="run", evaluations=192, slice=64)
    done = play(school, FakeLearner())
    assert done["state"] == "completed"
    assert (done["learning"]["version"], done["learning"]["step"]) == (None, 0)
    assert done["learning"]["taken"] > 1
    names = {p["definition"]["slug"] for p in school.api.get("/v1/policies").json()["items"]}
    assert len([name for name in names if name.startswith("base-")]) > 1


NOT_LEARNING: list[tuple[dict[str, Any], str]] = [
    ({"parallel": 4}, "parallel: expected 1, not 4, where all runs share a learner"),
    ({"slice": 4}, "4 evaluations, of a run or of a slice, fill no group of 8 answers"),
    ({"samples_per_prompt": 4}, "expected samples_per_prompt and batch of at least 8, not 4 and 16"),
    ({"learning_scope": "problem"}, "'campaign' or 'run'"),
]


def test_campaigns_that_cannot_learn_are_refused(school: Lab) -> None:
    for changes, words in NOT_LEARNING:
        assert words in refused(school.api.post("/v1/campaigns", body(**changes)), 422, "invalid-input")["detail"]


@pytest.mark.parametrize(("scope", "parallel"), [("campaign", 1), ("run", 8)])
def test_the_form_declares_a_campaign_that_learns(school: Lab, scope: str, parallel: int) -> None:
    form = {"slug": "taught", "problems": "never soon", "policy": "base", "evaluations": "480", "slice": "48",
            "parallel": "8", "samples_per_prompt": "8", "learning.estimator": "entropic", "learning.groups": "4",
            "learning_scope": scope}  # fmt: skip
    assert 'name="learning.groups"' in school.api.get("/campaigns/new").text
    own = {"Origin": str(school.api.http.base_url).rstrip("/")}
    answer = school.api.http.post("/campaigns", data=form, headers=own, follow_redirects=False)
    assert answer.status_code == 303, answer.text
    declared = school.api.get("/v1/campaigns/taught").json()["declaration"]
    learning = declared["learning"]
    assert (learning["estimator"], learning["groups"], learning["staleness"]) == ("entropic", 4, 1)
    assert (declared["learning_scope"], declared["parallel"]) == (scope, parallel)
