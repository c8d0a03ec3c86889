"""Unlocks: first, alone and never, per problem version."""

from __future__ import annotations

import csv
import io
import json
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from evaluators.evaluator import SandboxEvaluator
from service.dashboard.routes import problems
from service.dashboard.routes import unlocks as matrix
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.ranking import Merit
from speciate.domain.stage import Stage
from speciate.domain.target import Target
from speciate.policies import build_client
from speciate.runs.executor import WorkExecutor
from speciate.schema.runs import RankedCandidate
from speciate.storage.metrics.overview import Overview
from tests.integration.service.conftest import Lab, refused, scripted
from tests.support.runs import toy_problem

pytestmark = pytest.mark.servers

BAD = ["```python\nx = 6\ny = 9\n```"]


@pytest.fixture
def tried(lab: Lab) -> Lab:
    """Two runs of a policy that unlocks under two strategies, and one of a policy that never does."""
    lab.stores.catalog.add_policy(scripted(BAD, slug="bad"))
    for policy, strategy, seed in (("bad", "best_of_n", 1), ("scripted", "best_of_n", 1), ("scripted", "best_of_n", 2)):
        lab.start(40, policy=policy, strategy=strategy, seed=seed)
        lab.work()
    lab.start(40, policy="scripted", strategy="islands_map_elites")
    lab.work()
    return lab


def _of(lab: Lab, name: str, target: str) -> dict[str, Any]:
    answer = lab.api.get(f"/v1/problems/{name}/unlocks")
    assert answer.status_code == 200, answer.text
    return dict(next(each for each in answer.json()["targets"] if each["target"] == target))


def test_problem_unlocks_first_alone_and_never(tried: Lab) -> None:
    found = _of(tried, "toy", "both")
    assert (found["unlock"], found["only"], found["never"]) == (True, "scripted@1", ["bad@1"])
    assert (found["first"]["policy"], found["first"]["by_seed"]) == ("scripted", False)
    attempts = {(a["policy"], a["strategy"]): a for a in found["attempts"]}
    assert set(attempts) == {
        ("bad@1", "best_of_n"), ("scripted@1", "best_of_n"), ("scripted@1", "islands_map_elites")
    }  # fmt: skip
    never = attempts["bad@1", "best_of_n"]
    assert (never["runs"], never["evaluations"], never["reached"], never["first"]) == (1, 40, 0, None)
    twice = attempts["scripted@1", "best_of_n"]
    assert (twice["runs"], twice["evaluations"], twice["reached"], twice["unlocked_first"]) == (2, 80, 2, True)
    assert twice["seconds"] > 0
    assert twice["first"]["run_id"] == found["first"]["run_id"]
    assert 0 < twice["first"]["evaluations"] <= 40
    # Both reached the easier target, so neither is the only one.
    half = _of(tried, "toy", "half")
    assert (half["only"], half["never"]) == (None, [])
    assert half["first"]["policy"] == "bad"


def test_what_the_seed_program_meets_is_no_feat_of_the_policy(lab: Lab) -> None:
    lab.stores.catalog.add_problem(toy_problem().model_copy(update={"slug": "easy", "seed_program": "x = 9\ny = 0\n"}))
    lab.start(3, problem="easy", policy="scripted", strategy="best_of_n")
    lab.work()
    assert _of(lab, "easy", "both")["first"]["by_seed"] is True


def test_first_unlock_per_policy_and_strategy(tried: Lab) -> None:
    query = {"problem": "toy", "unlocks_only": True}
    everything = tried.api.get("/v1/unlocks", params=query).json()["items"]
    first = tried.api.get("/v1/unlocks", params={**query, "first": True}).json()["items"]
    assert (len(everything), len(first)) == (3, 2)
    earliest = min((u for u in everything if u["strategy"] == "best_of_n"), key=lambda u: u["at"])
    assert earliest in first
    named = tried.api.get("/v1/unlocks", params={**query, "strategy": "islands_map_elites"}).json()["items"]
    assert [u["strategy"] for u in named] == ["islands_map_elites"]
    assert named[0] in first


def test_the_record_history_of_many_unlocks_keeps_every_record(tried: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, unlocks = tried.stores.catalog.problem("toy"), tried.stores.unlocks
    before, total = unlocks.history(problem.id, latest=500)
    assert ([each.at for each in before], total) == (sorted(each.at for each in before), 3)
    with tried.stores.engine.begin() as connection:
        for unlock, evaluations in zip(before, (10, 30, 20), strict=True):
            query = sa.text("UPDATE claims SET evaluations = :n WHERE run_id = :run_id AND target = 'both'")
            connection.execute(query, {"n": evaluations, "run_id": unlock.run_id})
    history, total = unlocks.history(problem.id, latest=1)
    assert ([each.evaluations for each in history], total) == ([10, 20], 3)
    cheapest = unlocks.cheapest(problem.id)
    assert (set(cheapest), cheapest["both"]) == ({"half", "both"}, history[0])
    monkeypatch.setattr(problems, "_LATEST", 1)
    assert "left out: 1." in tried.api.get("/problems/toy/records.json").json()["note"]
    # The cached figure is replaced although as many points are drawn as before.
    tried.start(40, policy="scripted", strategy="best_of_n", seed=3)
    tried.work()
    with tried.stores.engine.begin() as connection:
        connection.execute(sa.text("UPDATE claims SET evaluations = 20 WHERE target = 'both' AND evaluations <> 10"))
    assert "left out: 2." in tried.api.get("/problems/toy/records.json").json()["note"]


def test_the_matrix_counts_hidden_columns_and_the_download_has_them(
    tried: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "more is in the download" not in tried.api.get("/unlocks").text
    monkeypatch.setattr(matrix, "MAX_COLUMNS", 1)
    text = tried.api.get("/unlocks").text
    assert "1 more is in the download" in text
    assert text.count('<th scope="col">') == 2
    header, row = csv.reader(io.StringIO(tried.api.get("/unlocks/matrix.csv").text))
    assert dict(zip(header, row, strict=True)) == {
        "problem": "toy@1", "scripted@1": "3/3", "bad@1": "0/1", "compared": ""
    }  # fmt: skip


def test_no_surface_shows_an_infeasible_record(lab: Lab) -> None:
    problem = toy_problem()
    held = Objective(
        name="y", direction=problem.objectives[1].direction, role=ObjectiveRole.CONSTRAINT, range=(0, 10), limit=4
    )
    # The infeasible candidate satisfies the rule, which does not name the constraint.
    large = Target(name="large", rule="x >= 5", unlock=True)
    changes = {"slug": "held", "objectives": (problem.objectives[0], held), "weights": {"x": 1.0}, "targets": (large,)}
    constrained = problem.model_copy(update=changes)
    lab.stores.catalog.add_problem(constrained)
    lab.stores.catalog.add_policy(
        scripted([f"```python\nx = {x}\ny = {y}\n```" for x, y in ((3, 4), (9, 5), (5, 1))], slug="p")
    )
    run_id = lab.start(20, problem="held", policy="p", strategy="best_of_n")
    lab.work()
    run = lab.api.get(f"/v1/runs/{run_id}").json()
    assert run["best"]["rewards"] == {"x": 5.0, "y": 1.0}
    (unlock,) = lab.api.get("/v1/unlocks", params={"problem": "held"}).json()["items"]
    exported = lab.api.get(f"/v1/runs/{run_id}/export").text.splitlines()
    candidates = {each["number"]: each for each in map(json.loads, exported)}
    assert candidates[unlock["number"]]["rewards"] == {"x": 5.0, "y": 1.0}
    assert {tuple(each["targets"]) for each in candidates.values() if each["rewards"]["y"] > 4} == {()}
    history = lab.api.get("/problems/held/records.csv").text
    assert str(unlock["evaluations"]) in history
    answer = lab.api.get("/v1/problems/held/records")
    assert answer.status_code == 200, answer.text
    records = answer.json()["items"]
    values = [record["value"] for record in records]
    assert values[0] == 5.0  # 9 is larger and breaks the constraint
    assert values == sorted(set(values), reverse=True)
    assert {record["objective"] for record in records} == {"x"}
    assert (records[0]["policy"], records[0]["forgeable"]) == ("p@1", False)
    assert records[0]["role"] == candidates[records[0]["number"]]["role"]
    lab.start(20, problem="held", policy="p", strategy="adaptive_evolution", batch=1)
    lab.work()
    first = lab.api.get("/v1/problems/held/records").json()["items"][0]
    assert (first["role"], first["policy"]) == ("polish", None)
    minimised = [r for r in lab.api.get("/v1/problems/toy/records").json()["items"] if r["objective"] == "y"]
    assert minimised == []


def test_best_of_each_policy_over_all_its_runs(tried: Lab) -> None:
    ensemble = tried.start(20, policy={"scripted": 1, "bad": 1})
    tried.work()
    version = tried.stores.catalog.problem("toy")
    ranking = version.definition.ranking

    def merit(best: RankedCandidate) -> Merit:
        met = sum(1 << i for i, target in enumerate(ranking.targets) if target.name in best.targets)
        return ranking.merit(tuple(best.rewards.values()), met)

    expected: dict[str, list[RankedCandidate]] = {"scripted@1": [], "bad@1": [], "bad@1 + scripted@1": []}
    for run in tried.stores.runs.list(problem_id=version.id).items:
        assert run.best is not None
        expected["bad@1 + scripted@1" if run.id == ensemble else f"{run.policy}@1"].append(run.best)
    bests = Overview(tried.stores.engine).bests(version)
    assert {each.policy_label: each.runs for each in bests} == {name: len(runs) for name, runs in expected.items()}
    assert all(merit(each.best) == max(map(merit, expected[each.policy_label])) for each in bests)
    assert [merit(each.best) for each in bests] == sorted((merit(each.best) for each in bests), reverse=True)
    assert bests[-1].policy_label == "bad@1"
    page = tried.api.get("/problems/toy", headers={"Accept": "text/html"}).text
    assert "Best ever, by policy" in page
    assert f'href="/runs/{bests[0].run_id}/candidates/{bests[0].best.number}"' in page
    assert Overview(tried.stores.engine, project=uuid4()).bests(version) == ()


STAGED = """
def evaluate_quick(candidate, context):
    return {"sound": candidate.call("sound").value}


def evaluate_slow(candidate, context):
    return {"cost": candidate.call("cost").value}
"""


def test_missing_rewards_are_not_records(lab: Lab, strongest: SandboxEvaluator) -> None:
    staged = Problem(
        slug="staged",
        title="Sound before cheap",
        kind=ProblemKind.EVALUATOR,
        objectives=(Objective(name="sound"), Objective(name="cost", direction=Direction.MINIMIZE, range=(0, 10))),
        targets=(Target(name="cheap", rule="cost <= 1", unlock=True),),
        stages=(Stage(name="quick", objectives=("sound",), needs="sound >= 1"),
                Stage(name="slow", objectives=("cost",))),
        evaluator=STAGED,
    )  # fmt: skip
    answers = [
        f"```python\ndef sound():\n    return {s}\ndef cost():\n    return {c}\n```" for s, c in ((0, 1), (1, 12))
    ]
    lab.stores.catalog.add_problem(staged)
    lab.stores.catalog.add_policy(scripted(answers, slug="p"))
    run_id = lab.start(20, problem="staged", policy="p", strategy="best_of_n")
    executor = WorkExecutor(lab.stores.work, lab.stores.signals, strongest, build_client)
    while waiting := lab.stores.runs.work_in_flight(limit=1):
        assert executor.execute(waiting[0].work_id)
    candidates = lab.api.get(f"/v1/runs/{run_id}/candidates").json()["items"]
    assert {(c["rewards"]["cost"], c["stopped_at"]) for c in candidates} == {(10.0, "slow"), (12.0, None)}
    records = lab.api.get("/v1/problems/staged/records").json()["items"]
    assert [r["value"] for r in records if r["objective"] == "cost"] == [12.0]


@pytest.mark.parametrize("change", [{"title": "Another title"}, {"evaluator": "def evaluate(c, x):\n    return {}\n"}])
def test_new_version_or_evaluator_inherits_no_unlocks(tried: Lab, change: dict[str, str]) -> None:
    newer, new = tried.stores.catalog.add_problem(toy_problem().model_copy(update=change))
    assert new
    assert newer.version == 2
    assert tried.api.get("/v1/unlocks", params={"problem": "toy@2"}).json()["items"] == []
    assert _of(tried, "toy", "both") == {
        "target": "both", "unlock": True, "first": None, "only": None, "never": [], "attempts": []
    }  # fmt: skip
    assert tried.api.get("/v1/problems/toy@2/records").json()["items"] == []
    assert _of(tried, "toy@1", "both")["first"] is not None
    refused(tried.api.get("/v1/problems/nothing/unlocks"), 404, "not-found")


def test_unlock_with_a_mutator_belongs_to_the_pair(tried: Lab) -> None:
    tried.start(40, policy="bad", mutator="scripted", strategy="islands_map_elites", seed=9)
    tried.start(40, policy="scripted", mutator="scripted", strategy="islands_map_elites", seed=10)
    tried.work()
    pair = "bad@1 with scripted@1"
    found = _of(tried, "toy", "both")
    assert (found["only"], found["never"]) == (None, ["bad@1"])
    asked = {(a["policy"], a["mutator"], a["strategy"]): (a["runs"], a["reached"]) for a in found["attempts"]}
    assert asked["bad@1", "scripted@1", "islands_map_elites"] == (1, 1)
    # Who is named as its own mutator is asked as before.
    assert asked["scripted@1", None, "islands_map_elites"] == (2, 2)
    first = {"problem": "toy", "unlocks_only": True, "first": True}
    assert len(tried.api.get("/v1/unlocks", params=first).json()["items"]) == 3

    text = tried.api.get("/unlocks/matrix.csv", params={"a": pair, "b": "bad@1"}).text
    (row,) = csv.DictReader(io.StringIO(text))
    assert {name: row[name] for name in ("bad@1", pair, "scripted@1", "compared")} == {
        "bad@1": "0/1", pair: "1/1", "scripted@1": "4/4", "compared": "only-a"
    }  # fmt: skip
    page = tried.api.get("/unlocks").text
    assert f"<option>{pair}</option>" in page
    assert pair in tried.api.get("/problems/toy@1/records.csv").text
    refused(tried.api.get("/unlocks", params={"a": "bad@1 with missing"}), 404, "not-found")
    own = tried.stores.catalog.policy("bad")
    figures = Overview(tried.stores.engine).policy(own.id)
    assert (figures.runs, figures.unlocked) == (1, 0)


def test_ensemble_counts_separately(tried: Lab) -> None:
    tried.start(40, policy={"bad": 1, "scripted": 3}, strategy="best_of_n", seed=9)
    tried.work()
    found = _of(tried, "toy", "both")
    names = {a["policy"] for a in found["attempts"]}
    assert "bad@1 + scripted@1" in names
    assert found["only"] is None
    assert found["never"] == ["bad@1"]


def test_order_of_ensemble_members_does_not_matter(lab: Lab) -> None:
    lab.stores.catalog.add_policy(scripted(BAD, slug="bad"))
    for seed, names in enumerate((("bad", "scripted"), ("scripted", "bad"), ("scripted", "bad"))):
        lab.start(40, policy=dict.fromkeys(names, 1), strategy="best_of_n", seed=seed)
        lab.work()
    (attempt,) = _of(lab, "toy", "both")["attempts"]
    assert (attempt["policy"], attempt["runs"], attempt["reached"]) == ("bad@1 + scripted@1", 3, 3)
    query = {"problem": "toy", "unlocks_only": True, "first": True}
    assert len(lab.api.get("/v1/unlocks", params=query).json()["items"]) == 1
