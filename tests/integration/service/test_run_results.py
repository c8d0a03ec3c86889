"""Results of a run over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from uuid import uuid4

import numpy as np
import pytest
import sqlalchemy as sa

from service.dashboard.context import DashboardContext
from speciate.cli.runs.replay import replay_run
from speciate.domain.charge import Charge
from speciate.domain.objective import ObjectiveRole
from speciate.domain.policy import Policy, Price
from speciate.policies import build_client
from speciate.ports.policy import SampleRequest, SampleResult
from speciate.storage import cursors
from speciate.storage.candidates.arrays import ArrayReader
from tests.conformance.test_noisy_runs import NoisyToy
from tests.integration.service.conftest import Lab, refused, scripted
from tests.support.runs import ToyEvaluator, toy_problem

pytestmark = pytest.mark.servers


def test_candidates_are_listed_read_and_exported(lab: Lab) -> None:
    run = f"/v1/runs/{lab.start(13)}"
    lab.work()
    page = lab.api.get(f"{run}/candidates", params={"limit": 10}).json()
    rest = lab.api.get(f"{run}/candidates", params={"cursor": page["next_cursor"]}).json()
    assert [item["number"] for item in page["items"] + rest["items"]] == list(range(13, 0, -1))
    assert "program" not in page["items"][0]
    detail = lab.api.get(f"{run}/candidates/13").json()
    assert detail == lab.api.get(f"/v1/candidates/{detail['id']}").json()
    assert detail["program"].startswith("x = ")

    export = lab.api.get(f"{run}/export")
    assert export.headers["content-type"].startswith("application/x-ndjson")
    lines = [json.loads(line) for line in export.text.splitlines()]
    assert [line["number"] for line in lines] == list(range(1, 14))
    assert lines[-1] == detail | {"run_name": "", "run_tags": []}

    assert lab.api.get(f"{run}/candidates", params={"status": "failed"}).json()["items"] == []
    assert lab.api.get(f"{run}/candidates", params={"island": 63}).json()["items"] == []
    for number in ("0", "x", str(2**63)):
        refused(lab.api.get(f"{run}/candidates/{number}"), 422, "invalid-input")
    refused(lab.api.get(f"{run}/candidates/14"), 404, "not-found")
    for cursor in ("WyJ4Il0", "bm8", "W3RydWVd"):
        refused(lab.api.get(f"{run}/candidates", params={"cursor": cursor}), 422, "invalid-input")


def test_a_run_in_which_every_candidate_failed_has_no_result_and_says_why(lab: Lab) -> None:
    lab.stores.catalog.add_problem(
        toy_problem(seed_program="raise ValueError('bad seed')").model_copy(update={"slug": "bad"})
    )
    lab.stores.catalog.add_policy(scripted(slug="lost", completions=["```python\nx = y\n```"]))
    run = lab.start(5, problem="bad", policy="lost")
    lab.work()
    read = lab.api.get(f"/v1/runs/{run}").json()
    assert (read["state"], read["best"], read["failed"]) == ("completed", None, 5)
    assert read["no_result"].startswith("no candidate has rewards: the seed program fails: ")
    page = lab.api.http.get(f"/runs/{run}").text
    assert '<span class="state no-result">no result</span>' in page
    assert 'class="plot' not in page
    assert "No data yet" not in page
    assert "No answer yet" not in page
    assert "state completed" not in page
    assert "no result" in lab.api.http.get("/runs").text
    scored = lab.start(5)
    lab.work()
    assert lab.api.get(f"/v1/runs/{scored}").json()["no_result"] is None


def test_the_page_compares_the_best_candidate_with_the_seed(lab: Lab) -> None:
    run = lab.start(1)
    lab.work()
    assert "This is the seed program: nothing better was found." in lab.api.http.get(f"/runs/{run}").text
    assert "/candidates/2" not in lab.api.http.get(f"/runs/{run}/candidates/1").text  # which does not exist
    lab.stores.catalog.add_policy(scripted(slug="other", completions=["```python\nx = 3\ny = 10\n```"]))
    run = lab.start(5, policy="other")
    lab.work()
    page = lab.api.http.get(f"/runs/{run}").text
    assert re.search(r">3</td><td[^>]*>1</td><td><span[^>]*>2 better</span>", page)
    assert re.search(r">10</td><td[^>]*>9</td><td><span[^>]*>1 worse</span>", page)
    assert ">trade-offs</a>" in page
    assert "then the weighted sum decides" in page


def test_duplicates_are_reported(lab: Lab) -> None:
    answers = ["x = 3\ny = 3", "x = (3)  # three\ny = 3", "x = 4\ny = 3"]
    lab.stores.catalog.add_policy(scripted(slug="same", completions=[f"```python\n{a}\n```" for a in answers]))
    # One token each: {x, =, 3, y} and {x, =, 4, y, 3} have four of five in common.
    run = f"/v1/runs/{lab.start(4, policy='same', strategy='best_of_n', seed=1, novelty={'near': 0.8, 'shingle': 1})}"
    lab.work()
    twin, near = (lab.api.get(f"{run}/candidates/{number}").json() for number in (3, 4))
    assert (twin["duplicate_of"], twin["rewards"], twin["failure"]) == (2, {"x": 3.0, "y": 3.0}, None)
    assert (near["duplicate_of"], near["rewards"], near["failure"]) == (2, None, "rejected")
    assert (near["failure_reason"], near["failure_detail"]) == ("near_duplicate", "80% similar to candidate 2")
    read = lab.api.get(run).json()
    assert (read["duplicates"], read["reasons"], read["spent"]["evaluations"]) == (1, {"near_duplicate": 1}, 4)
    assert read["spec"]["novelty"] == {"same": None, "near": 0.8, "shingle": 1, "window": 64}


def test_reused_result_names_its_candidate(lab: Lab) -> None:
    first = lab.start(40, reuse_results=True)
    lab.work()
    alone, second = lab.start(40), lab.start(40, reuse_results=True)
    lab.work()
    read = {run_id: lab.api.get(f"/v1/runs/{run_id}").json() for run_id in (first, alone, second)}
    assert [run["reused"] for run in read.values()] == [0, 0, read[second]["evaluated"] - read[second]["duplicates"]]
    assert {run["spent"]["evaluations"] for run in read.values()} == {40}
    best = {run_id: run["best"] for run_id, run in read.items()}
    assert best[second] == best[first] | {"id": best[second]["id"]}
    hit, own = (lab.api.get(f"/v1/runs/{run_id}/candidates/2").json() for run_id in (second, first))
    assert (hit["reused_from"], hit["rewards"], hit["wall_s"]) == (f"{first}/2", own["rewards"], 0)
    assert own["reused_from"] is None
    report = replay_run(lab.stores, second, ToyEvaluator())  # type: ignore[arg-type]
    assert report.identical, report.describe()


class _Agent:
    """Answers like a scripted policy, and reports what it cost."""

    def __init__(self, policy: Policy) -> None:
        self._client = build_client(policy)
        self.token_ceiling, self.ping = self._client.token_ceiling, self._client.ping

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        return [replace(each, cost=0.0625 * len(each.completions)) for each in self._client.sample(requests)]


def test_a_replay_repeats_reported_costs_and_lost_attempts(lab: Lab) -> None:
    lab.stores.catalog.add_policy(scripted(slug="reporting", price=Price()))
    run = lab.start(policy="reporting", budget={"dollars": 2.0, "evaluations": 100})
    lab.work(1)
    lease = lab.stores.work.claim(lab.stores.runs.work_in_flight()[0].work_id)
    assert lease is not None
    lab.stores.work.release(lease, "the endpoint is down", spent=Charge(40, 0.5))
    lab.api.post(f"/v1/runs/{run}:resume")
    lab.work(client_for=_Agent)
    read = lab.api.get(f"/v1/runs/{run}").json()
    assert (read["spent"]["evaluations"], read["spent"]["cost"]) == (1 + 24, 2.0)
    report = replay_run(lab.stores, run, ToyEvaluator())  # type: ignore[arg-type]
    assert report.identical, report.describe()


def test_reused_results_are_deleted_with_their_run(lab: Lab) -> None:
    first = lab.start(40, reuse_results=True)
    lab.work()
    with lab.stores.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM runs WHERE id = :id"), {"id": first})
    second = lab.start(40, reuse_results=True)
    lab.work()
    assert lab.api.get(f"/v1/runs/{second}").json()["reused"] == 0


def test_results_of_a_deleted_run_make_room_for_those_of_later_runs(lab: Lab) -> None:
    reused = []
    for deleted in (True, False, False):
        run = lab.start(40, reuse_results=True)
        lab.work()
        reused.append(lab.api.get(f"/v1/runs/{run}").json()["reused"])
        if deleted:
            assert lab.api.http.delete(f"/v1/runs/{run}").status_code == 200
    assert reused[:2] == [0, 0]
    assert reused[2] > 0


def test_front_and_archive(lab: Lab) -> None:
    run = f"/v1/runs/{lab.start(40)}"
    lab.work()
    archive = lab.api.get(f"{run}/archive").json()["items"]
    front = lab.api.get(f"{run}/front").json()["items"]
    largest = max((cell["elite"] for cell in archive), key=lambda elite: elite["rewards"]["x"])
    assert [found["number"] for found in front] == [largest["number"]]  # a larger x always has a smaller y here
    assert lab.api.get(run).json()["best"] == front[0]
    assert {"half", "both"} == set(front[0]["targets"])
    assert {cell["elite"]["number"] for cell in archive if cell["cell"] == "target:both/even"} == {largest["number"]}


def test_rollouts_have_prompts(lab: Lab) -> None:
    run = f"/v1/runs/{lab.start(9)}"
    lab.work()
    listed = lab.api.get(f"{run}/rollouts", params={"limit": 500}).json()["items"]
    rollout = lab.api.get(f"/v1/rollouts/{listed[0]['id']}").json()
    assert "completion" not in listed[0]
    assert rollout["completion"].startswith("```python")
    assert rollout["user"]
    refused(lab.api.get(f"/v1/rollouts/{uuid4()}"), 404, "not-found")
    refused(lab.api.get("/v1/rollouts/x"), 422, "invalid-input")


def test_child_has_a_diff_and_ancestors(lab: Lab) -> None:
    run = f"/v1/runs/{lab.start(40)}"
    lab.work()
    children = [c for c in lab.api.get(f"{run}/candidates").json()["items"] if c["parents"]]
    child = children[0]
    parent = lab.api.get(f"{run}/candidates/{child['parents'][0]}").json()
    diff = lab.api.get(f"/v1/candidates/{child['id']}/diff").json()
    assert (diff["number"], diff["parent"], diff["minimal"]) == (child["number"], parent["number"], True)
    program = lab.api.get(f"/v1/candidates/{child['id']}").json()["program"]
    removed = [line[1:] for line in diff["diff"].split("\n") if line.startswith("-") and not line.startswith("---")]
    added = [line[1:] for line in diff["diff"].split("\n") if line.startswith("+") and not line.startswith("+++")]
    assert set(removed) <= set(parent["program"].split("\n"))
    assert set(added) <= set(program.split("\n"))

    lineage = lab.api.get(f"/v1/candidates/{child['id']}/lineage").json()["items"]
    numbers = [item["number"] for item in lineage]
    assert numbers == sorted(set(numbers), reverse=True)
    assert numbers[0] == max(child["parents"])
    assert numbers[-1] == 1
    assert set(child["parents"]) <= set(numbers)
    shortened = lab.api.get(f"/v1/candidates/{child['id']}/lineage", params={"limit": 1}).json()["items"]
    assert shortened == lineage[:1]

    seed = lab.api.get(f"{run}/candidates/1").json()
    assert lab.api.get(f"/v1/candidates/{seed['id']}/lineage").json()["items"] == []
    assert lab.api.get(f"/v1/candidates/{seed['id']}/diff").json()["parent"] is None
    for path in ("", "/diff", "/lineage"):
        refused(lab.api.get(f"/v1/candidates/{uuid4()}{path}"), 404, "not-found")


def test_lineage_is_one_bounded_statement(lab: Lab) -> None:
    run = lab.start(60)
    lab.work()
    parents = {c["number"]: c["parents"] for c in lab.api.get(f"/v1/runs/{run}/candidates?limit=500").json()["items"]}
    queries = lab.stores.queries
    for number in parents:
        line, waiting = [], set(parents[number])
        while waiting:
            line.append(max(waiting))
            waiting |= set(parents[line[-1]])
            waiting -= set(line)
        child, asked = queries.candidate_of(run, number), []
        sa.event.listen(
            lab.stores.engine, "before_cursor_execute", note := lambda *given, to=asked: to.append(given[2])
        )
        assert [each.number for each in queries.ancestors(child, 500)] == line
        assert [each.number for each in queries.ancestors(child, 3)] == line[:3]
        sa.event.remove(lab.stores.engine, "before_cursor_execute", note)
        assert len([statement for statement in asked if "candidates" in statement]) == 2


def test_unlocks_are_recorded(lab: Lab) -> None:
    run = lab.start(40)
    lab.work()
    own = lab.api.get(f"/v1/runs/{run}/unlocks").json()["items"]
    assert {item["target"] for item in own} == {"half", "both"}
    assert lab.api.get(f"/v1/runs/{run}").json()["unlocked"] is True
    everything = lab.api.get("/v1/unlocks", params={"run": str(run), "problem": "toy", "policy": "scripted"}).json()
    assert everything["items"] == own
    only = lab.api.get("/v1/unlocks", params={"unlocks_only": "true"}).json()["items"]
    assert [item["target"] for item in only] == ["both"]
    assert lab.api.get("/v1/unlocks", params={"state": "refuted"}).json()["items"] == []
    assert lab.api.get("/v1/unlocks", params={"state": "any"}).json()["items"] == own
    first = lab.api.get("/v1/unlocks", params={"limit": 1}).json()
    second = lab.api.get("/v1/unlocks", params={"limit": 1, "cursor": first["next_cursor"]}).json()
    assert first["items"] + second["items"] == own
    for query in ({"run": str(uuid4())}, {"problem": "no"}, {"policy": "no"}):
        refused(lab.api.get("/v1/unlocks", params=query), 404, "not-found")
    for query in ({"run": "x"}, {"state": "x"}, {"cursor": "W10"}, {"problem": ""}):
        refused(lab.api.get("/v1/unlocks", params=query), 422, "invalid-input")


def test_charts_leave_out_a_target_that_was_refuted_after_they_were_drawn(lab: Lab) -> None:
    run = lab.start(40)
    lab.work()
    context, problem = DashboardContext.from_stores(lab.stores), lab.stores.catalog.problem("toy").definition
    before = context.populations.of(run, problem)
    assert context.populations.of(run, problem) is before
    claim = next(each for each in lab.stores.unlocks.list(run_id=run).items if each.target == "both")
    with lab.stores.engine.begin() as connection:
        query = sa.text(
            "UPDATE claims SET state = 'refuted' WHERE run_id = :run AND number = :number AND target = 'both'"
        )
        connection.execute(query, {"run": run, "number": claim.number})
    after = context.populations.of(run, problem)
    assert after.columns is before.columns
    assert after.refuted == ((claim.number, "both"),)
    lost = before.targets & ~after.targets
    bit = 1 << [target.name for target in problem.targets].index("both")
    assert dict(zip(after.columns.number.tolist(), lost.tolist(), strict=True)) == {
        number: bit if number == claim.number else 0 for number in after.columns.number.tolist()
    }


def test_charts_show_the_noisy_rewards_that_are_known_now(lab: Lab) -> None:
    noisy = toy_problem().model_copy(update={"slug": "noisy", "stochastic": True})
    lab.stores.catalog.add_problem(noisy)
    run, populations = lab.start(40, problem="noisy"), DashboardContext.from_stores(lab.stores).populations
    evaluator, stale = NoisyToy(2.0), 0
    while lab.work(1, evaluator=evaluator):
        watched = populations.of(run, noisy).columns
        now = ArrayReader(lab.stores.engine).arrays(run, 2)
        stale += not np.array_equal(watched.rewards, now.rewards, equal_nan=True)
        stale += not np.array_equal(watched.targets, now.targets)
    assert len(watched) == 40
    assert stale == 0


def test_the_front_of_a_noisy_run_consists_of_what_is_known_not_of_lucky_evaluations(lab: Lab) -> None:
    noisy = toy_problem().model_copy(update={"slug": "noisy", "stochastic": True, "weights": None})
    lab.stores.catalog.add_problem(noisy)
    lab.stores.catalog.add_policy(scripted([f"```python\nx = 5.{i}\ny = 5\n```" for i in range(60)], slug="many"))
    run = lab.start(60, problem="noisy", policy="many")
    lab.work(evaluator=NoisyToy(2.0))
    front = [each["number"] for each in lab.api.get(f"/v1/runs/{run}/front").json()["items"]]
    bounds = {cell.elite.number: cell.elite.rewards for cell in lab.stores.queries.archive(run)}
    assert front[0] == lab.api.get(f"/v1/runs/{run}").json()["best"]["number"]
    better = [
        (a, b) for a in front[1:] for b in bounds if bounds[b]["x"] > bounds[a]["x"] and bounds[b]["y"] < bounds[a]["y"]
    ]
    assert not better
    population = DashboardContext.from_stores(lab.stores).populations.of(run, noisy)
    assert population.columns.number[population.ranked_front].tolist() == front
    assert sorted(population.columns.number[population.front].tolist()) == sorted(front)
    again = lab.start(20, problem="noisy", policy="many", seed_from=[{"run": str(run)}])
    assert [seed.origin for seed in lab.stores.work.context(again).seeds] == [f"{run}/{number}" for number in front]


def test_the_front_of_a_noisy_run_with_one_objective_is_its_best_with_its_final_value(lab: Lab) -> None:
    x, y = toy_problem().objectives
    record = y.model_copy(update={"role": ObjectiveRole.RECORD})
    changes = {"slug": "single", "stochastic": True, "weights": None, "objectives": (x, record)}
    lab.stores.catalog.add_problem(toy_problem().model_copy(update=changes))
    lab.stores.catalog.add_policy(scripted([f"```python\nx = 5.{i}\ny = 5\n```" for i in range(40)], slug="several"))
    for seed in range(4):
        run = f"/v1/runs/{lab.start(40, problem='single', policy='several', seed=seed)}"
        lab.work(evaluator=NoisyToy(2.0))
        best, front = lab.api.get(run).json()["best"], lab.api.get(f"{run}/front").json()["items"]
        assert [(each["number"], each["rewards"]) for each in front] == [(best["number"], best["rewards"])]


def test_a_seed_program_that_was_scored_after_a_resume_is_what_the_best_is_compared_with(lab: Lab) -> None:
    run = f"/v1/runs/{lab.start(5)}"
    lab.work(evaluator=NoisyToy(0.0, breaking=(1,), reason="evaluator_raised"))
    assert lab.api.get(run).json()["state"] == "paused"
    lab.api.post(f"{run}:resume")
    lab.work()
    assert {each["objective"]: each["seed"] for each in lab.api.get(run).json()["best_rewards"]} == {"x": 1.0, "y": 9.0}


def test_a_noisy_seed_program_is_not_worse_than_itself(lab: Lab) -> None:
    noisy = toy_problem().model_copy(update={"slug": "noisy", "stochastic": True, "weights": None})
    lab.stores.catalog.add_problem(noisy)
    worse = [f"```python\nx = 0.0{i}\ny = 9.9{i}\n```" for i in range(9)]
    lab.stores.catalog.add_policy(scripted(worse, slug="worse"))
    run = f"/v1/runs/{lab.start(12, problem='noisy', policy='worse')}"
    lab.work(evaluator=NoisyToy(0.2, breaking=range(1, 4), reason="evaluator_raised"))
    assert lab.api.get(run).json()["state"] == "paused"
    lab.api.post(f"{run}:resume")
    lab.work(evaluator=NoisyToy(0.2))
    record = lab.api.get(run).json()
    assert record["best"]["number"] == 4  # 2 and 3 are further evaluations of candidate 1, the seed program
    assert all(each["seed"] == each["value"] for each in record["best_rewards"])


def test_forged_cursor_is_rejected(lab: Lab) -> None:
    refused(lab.api.get("/v1/unlocks", params={"cursor": "WyJ4IiwxLCJ5Il0"}), 422, "invalid-input")
    for target in ("\x00", "\ud800"):
        made_up = cursors.encode(str(uuid4()), 1, target)
        refused(lab.api.get("/v1/unlocks", params={"cursor": made_up}), 422, "invalid-input")
