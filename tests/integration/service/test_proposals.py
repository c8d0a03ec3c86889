"""Proposals from outside through the API: receipts, results, prompts, hints, budgets, attribution and refusals."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import sqlalchemy as sa
from mcp import Client as McpClient

from service.api.proposals import proposer
from speciate.cli.mcp.tools import build_server
from speciate.domain.access import Scope
from speciate.domain.candidate import Evaluation
from speciate.domain.language import Language
from speciate.domain.objective import ObjectiveRole
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.run import RunState
from speciate.runs.external_proposals import next_step
from speciate.schema.proposals import ProposalRecord, ProposalState
from tests.integration.service.conftest import Api, Lab, refused, scripted
from tests.support.runs import SEED_PROGRAM, ToyEvaluator, toy_problem

BEST = "x = 9\ny = 1\n"


def propose(api: Api, run: UUID, *proposals: dict[str, Any], key: str | None = None, **body: Any) -> list[Any]:
    headers = {} if key is None else {"Idempotency-Key": key}
    answer = api.http.post(f"/v1/runs/{run}/proposals", json={"proposals": proposals, **body}, headers=headers)
    assert answer.status_code == 200, answer.text
    found: list[Any] = answer.json()["items"]
    return found


def result(lab: Lab, run: UUID, number: int) -> dict[str, Any]:
    found: dict[str, Any] = lab.api.get(f"/v1/runs/{run}/proposals/{number}").json()
    return found


def test_an_external_run_waits_for_proposals_and_its_unlock_names_the_author(lab: Lab) -> None:
    run = lab.start(8, policy="external")
    lab.work()
    seeded = lab.api.get(f"/v1/runs/{run}").json()
    assert (seeded["state"], seeded["policy"], seeded["spent"]["evaluations"]) == ("running", "external", 1)

    sent = [
        {"program": "x = 3\ny = 4\n", "parents": [1], "rationale": "smaller", "model": "m-1", "cost": 0.25},
        {"program": "x = 3\ny = 4\n", "prompt_tokens": 7, "completion_tokens": 3},
        {"program": "x = = 3\n"},
        {"completion": f"Better:\n```python\n{BEST}```\n", "parents": [1]},
        {"program": BEST, "parents": [99]},
    ]
    receipts = propose(lab.api, run, *sent)
    assert [(one["status"], one["number"]) for one in receipts] == [
        ("accepted", 2), ("accepted", 3), ("rejected", 4), ("accepted", 5), ("refused", None),
    ]  # fmt: skip
    assert receipts[2]["reason"] == "syntax_error: line 1: invalid syntax\nx = = 3"
    assert "no candidate 99" in receipts[4]["reason"]
    assert result(lab, run, 2)["state"] == "pending"
    lab.work()
    first = result(lab, run, 2)
    assert (first["state"], first["rewards"], first["targets"]) == ("evaluated", {"x": 3.0, "y": 4.0}, [])
    assert result(lab, run, 3)["duplicate_of"] == 2
    assert (result(lab, run, 4)["state"], result(lab, run, 4)["failure"]) == ("failed", "rejected")
    best = result(lab, run, 5)
    assert (best["targets"], best["confirmed"], best["best"], best["elite"]) == (
        ["half", "both"], ["both", "half"], True, True,
    )  # fmt: skip
    refused(lab.api.get(f"/v1/runs/{run}/proposals/6"), 404, "not-found")

    record = lab.api.get(f"/v1/runs/{run}").json()
    assert (record["state"], record["spent"]["evaluations"]) == ("running", 5)
    assert (record["spent"]["tokens"], record["spent"]["cost"]) == (10, 0.25)
    assert propose(lab.api, run, {"program": BEST})[0] | {"reason": ""} == {
        "index": 0, "status": "duplicate", "number": 6, "duplicate_of": 5, "reason": "",
    }  # fmt: skip
    (unlock,) = lab.api.get(f"/v1/unlocks?run={run}&unlocks_only=true").json()["items"]
    assert (unlock["policy"], unlock["proposed_by"], unlock["author"]) == ("external", "external@1", "local")
    child = lab.api.get(f"/v1/runs/{run}/candidates/2").json()
    assert (child["parents"], child["role"], child["policy_id"]) == ([1], "mutate", record["policy_id"])
    rollout = lab.api.get(f"/v1/rollouts/{child['rollout_id']}").json()
    assert (rollout["author"], rollout["model"], rollout["completion"]) == ("local", "m-1", "smaller")

    more = propose(lab.api, run, *({"program": f"x = {i}\ny = 5\n"} for i in range(4)))
    assert [one["status"] for one in more] == ["accepted", "accepted", "refused", "refused"]
    assert "leaves 0 evaluations" in more[2]["reason"]
    lab.work()
    ended = lab.api.get(f"/v1/runs/{run}").json()
    assert (ended["state"], ended["reason"]) == ("completed", "the budget of evaluations is spent")
    details = refused(lab.api.post(f"/v1/runs/{run}/proposals", {"proposals": [{"program": BEST}]}), 409, "conflict")
    assert "it is completed" in details["detail"]


NOTES = {"größe": "n", "program": "p"}


class WorseOnRepetition(ToyEvaluator):
    """Measures a smaller ``x`` each time it evaluates a program again."""

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        repeated = [self.evaluated.count(program) for program in programs]
        found = super().evaluate(problem, programs, seeds=seeds)
        return [
            one
            if one.rewards is None
            else replace(one, rewards=(one.rewards[0] - n, one.rewards[1]), artifacts={"output": "[8]", **NOTES})
            for one, n in zip(found, repeated, strict=True)
        ]


def test_a_refuted_target_is_shown_with_what_both_evaluations_measured(lab: Lab) -> None:
    run = lab.start(8, policy="external")
    evaluator = WorseOnRepetition()
    lab.work(evaluator=evaluator)
    propose(lab.api, run, {"program": "x = 8\ny = 1\n"})
    lab.work(evaluator=evaluator)
    told = {"both": "first evaluation 8, repeat 7: not confirmed"}
    found = result(lab, run, 2)
    assert (found["state"], found["targets"], found["confirmed"]) == ("evaluated", ["half"], ["half"])
    assert found["refuted"] == told
    child = lab.api.get(f"/v1/runs/{run}/candidates/2").json()
    assert (child["targets"], child["refuted"], child["repeats"]) == (["half"], told, [{"x": 7.0, "y": 1.0}])
    assert (found["feedback"], child["artifacts"]["output"]) == (NOTES, "[8]")
    download = lab.api.get(f"/runs/{run}/candidates/2/note-größe.txt")
    name = "attachment; filename*=UTF-8''candidate-2-note-gr%C3%B6%C3%9Fe.txt"
    assert (download.text, download.headers["content-disposition"]) == ("n", name)
    texts = [lab.api.get(f"/runs/{run}/candidates/2/{each}.txt").text for each in ("program", "note-program")]
    assert texts == [child["program"], "p"]
    assert "independent of seed and time" in found["next"]
    path = f"/v1/runs/{run}/candidates"
    assert lab.api.get(f"{path}?target=both").json()["items"] == []
    assert [one["refuted"] for one in lab.api.get(f"{path}?target=half").json()["items"]] == [told]
    assert lab.api.get(f"/v1/runs/{run}/front").json()["items"][0]["targets"] == ["half"]
    (ask,) = lab.api.post(f"/v1/runs/{run}:ask", {"parents": [2]}).json()["items"]
    assert "Does not meet both reliably: first evaluation 8, repeat 7" in ask["user"]
    for page in (f"/runs/{run}", f"/runs/{run}/candidates/2"):
        assert "first evaluation 8, repeat 7: not confirmed" in lab.api.http.get(page).text


def test_a_result_says_what_is_being_confirmed_and_a_proposer_that_comes_back_finds_its_proposals(lab: Lab) -> None:
    run = lab.start(8, policy="external")
    lab.work()
    path = f"/v1/runs/{run}/proposals"
    propose(lab.api, run, {"program": "x = 1\ny = 9.5\n", "parents": [1]})
    propose(lab.api, run, {"program": BEST, "parents": [1], "rationale": "larger"}, {"program": "y = 3\nx = 7\n"})
    waiting = lab.api.get(path).json()["items"]
    assert [(one["number"], one["state"], one["ahead"]) for one in waiting] == [
        (2, "pending", 0), (3, "pending", 1), (4, "pending", 2),
    ]  # fmt: skip
    lab.work(2)
    (confirming,) = lab.api.get(path).json()["items"]
    assert (confirming["number"], confirming["state"], confirming["rewards"]) == (3, "evaluated", {"x": 9.0, "y": 1.0})
    assert (confirming["confirming"], confirming["confirmed"]) == (["both", "half"], [])
    assert lab.api.get(f"{path}/3?wait=60&settled=false").json()["confirming"] == ["both", "half"]
    lab.work()
    assert lab.api.get(path).json()["items"] == []
    settled = result(lab, run, 3)
    assert (settled["confirming"], settled["confirmed"]) == ([], ["both", "half"])
    assert settled["next"] == "All targets are confirmed. Improve it further, or stop. Evaluations left: 4."
    assert settled["standing"] == "The best is candidate 3: it meets 2 of 2 targets."
    assert settled["summary"] == "x = 9, y = 1"
    worse = result(lab, run, 2)
    assert worse["summary"].startswith("x = 1, y = 9.5. Misses: both (missing: ")
    assert worse["next"] == "No better than its parent 1 in any reward: change the idea. Evaluations left: 4."
    second = result(lab, run, 4)
    assert (second["targets"], second["confirmed"], second["confirmed_by"]) == (["half"], [], {"half": 3})
    assert second["standing"] == "The best is candidate 3: it meets the unlock target."
    shown = [lab.api.get(f"/v1/runs/{run}/candidates/{number}").json()["rationale"] for number in (1, 2, 3)]
    assert shown == [None, None, "larger"]


def test_a_failure_of_its_own_is_offered_for_repair_once_and_to_its_author_only(lab: Lab) -> None:
    run = lab.start(9, policy="external", strategy="vector_evolution")
    lab.work()
    for program, parent in (("x = 2\ny = 8\n", 1), ("x = 3\nz = 1\n", 2)):
        propose(lab.api, run, {"program": program, "parents": [parent]})
        lab.work()
    assert "with parents [3]" in result(lab, run, 3)["next"]
    policy = proposer(lab.stores, run, None)
    (other,) = lab.stores.proposals.ask(run, policy, count=1, author="another agent") or ()
    assert other.parents[0].number != 3
    first, second = lab.api.post(f"/v1/runs/{run}:ask", {"count": 2}).json()["items"]
    assert "Fix this first" in first["user"]
    assert ([one["number"] for one in first["parents"]], [one["number"] for one in first["inspirations"]]) == ([3], [2])
    again = lab.api.post(f"/v1/runs/{run}:ask", {}).json()["items"]
    assert {ask["parents"][0]["number"] for ask in (second, *again)} <= {1, 2}


def test_no_prompt_asks_for_a_program_from_scratch_once_one_is_feasible(lab: Lab) -> None:
    run = lab.start(9, policy="external", strategy="vector_evolution")
    lab.work()
    propose(lab.api, run, {"program": BEST}, {"program": "x = 5\ny = 0.5\n"})
    lab.work()
    asks = lab.api.post(f"/v1/runs/{run}:ask", {"count": 40}).json()["items"]
    assert {ask["role"] for ask in asks} == {"mutate"}
    changed = [ask["parents"][0]["number"] for ask in asks]
    assert changed.count(2) > 20
    assert any(ask["inspirations"] for ask in asks if ask["parents"][0]["number"] == 2)


def test_every_change_is_shown_beside_programs_that_are_better_in_something(lab: Lab) -> None:
    run = lab.start(9, policy="external", strategy="adaptive_evolution")  # where it would polish, a proposer changes
    lab.work()
    propose(lab.api, run, {"program": BEST}, {"program": "x = 5\ny = 0.5\n"})
    lab.work()
    asks = lab.api.post(f"/v1/runs/{run}:ask", {"count": 40}).json()["items"]
    assert all(ask["inspirations"] or len(ask["parents"]) > 1 for ask in asks)


def test_a_program_is_read_as_an_answer_if_it_is_one(lab: Lab) -> None:
    run = lab.start(9, policy="external")
    lab.work()
    receipts = propose(
        lab.api,
        run,
        {"program": "  \n"},
        {"program": f"Larger is better.\n```python\n{BEST}```\nDone."},
        {"program": "<<<<<<< SEARCH\nx = 1\n=======\nx = 4\n>>>>>>> REPLACE\n", "parents": [1], "rationale": "bold"},
        {"program": "x = 6\ny = 2\n# Earlier:\n# ```\n# x = 1\n# ```\n"},
    )
    assert (receipts[0]["status"], receipts[0]["reason"]) == ("refused", "it is empty")
    lab.work()
    programs = [lab.api.get(f"/v1/runs/{run}/candidates/{number}").json() for number in (2, 3, 4)]
    assert [one["rewards"]["x"] for one in programs] == [9.0, 4.0, 6.0]
    assert [one["rationale"] for one in programs] == ["Larger is better.\n\nDone.", "bold", None]


def test_a_run_without_evaluations_left_gives_no_prompt(lab: Lab) -> None:
    run = lab.start(2, policy="external")
    lab.work()
    propose(lab.api, run, {"program": BEST})
    assert "leaves no evaluations" in refused(lab.api.post(f"/v1/runs/{run}:ask", {}), 409, "conflict")["detail"]
    lab.work()
    assert result(lab, run, 2)["next"] == (
        "The run has ended (the budget of evaluations is spent): report its best candidate."
    )
    cancelled = lab.start(3, policy="external")
    lab.work()
    propose(lab.api, cancelled, {"program": BEST})
    lab.work()
    lab.api.post(f"/v1/runs/{cancelled}:cancel")
    assert result(lab, cancelled, 2)["next"] == "The run has ended (cancelled): report its best candidate."


def test_held_out_rewards_are_shown_to_no_proposer_before_the_run_ends(lab: Lab) -> None:
    toy = toy_problem()
    held_out = toy.objectives[1].model_copy(update={"name": "held_out_y", "role": ObjectiveRole.RECORD})
    unlock = toy.targets[1].model_copy(update={"rule": "x >= 8 and held_out_y <= 2"})
    changes = {"slug": "held", "objectives": (toy.objectives[0], held_out), "targets": (toy.targets[0], unlock)}
    lab.stores.catalog.add_problem(Problem.model_validate(toy.model_dump() | changes | {"weights": {"x": 1.0}}))
    run = lab.start(3, policy="external", problem="held")
    evaluator = WorseOnRepetition()
    lab.work(evaluator=evaluator)
    propose(lab.api, run, {"program": "x = 8\ny = 1.375\n"})
    lab.work(evaluator=evaluator)
    found = result(lab, run, 2)
    assert (found["rewards"], found["targets"]) == ({"x": 8.0}, ["half"])
    assert found["refuted"] == {"both": "first evaluation 8, repeat 7: not confirmed"}
    answer = lab.api.post(f"/v1/runs/{run}:ask", {"parents": [2]})
    assert answer.json()["items"][0]["parents"][0]["rewards"] == {"x": 8.0}
    assert "1.375" not in answer.json()["items"][0]["user"].replace("y = 1.375", "")

    async def seen() -> list[Any]:
        async with McpClient(build_server(str(lab.api.http.base_url))) as client:
            calls = (("run_status", {}), ("candidate", {"number": 2}), ("candidate", {}), ("result", {"number": 2}))
            answers = [await client.call_tool(tool, {"run": str(run), **more}) for tool, more in calls]
            front = await client.call_tool("candidates", {"run": str(run)})
            assert run_ended or "held_out_y" not in str(front)
            return [json.loads(answer.content[0].text) for answer in answers]

    run_ended = False
    status, *rest = asyncio.run(seen())
    assert status["best"] == {"number": 2, "targets": ["half"], "rewards": {"x": 8.0}}
    assert [one["rewards"] for one in rest] == [{"x": 8.0}] * 3
    propose(lab.api, run, {"program": "x = 2\ny = 1\n"})
    lab.work(evaluator=evaluator)
    assert result(lab, run, 2)["rewards"] == {"x": 8.0, "held_out_y": 1.375}
    run_ended = True
    assert asyncio.run(seen())[1]["rewards"] == {"x": 8.0, "held_out_y": 1.375}


def test_a_violated_constraint_is_told_first(lab: Lab) -> None:
    toy = toy_problem()
    bound = toy.objectives[1].model_copy(update={"role": ObjectiveRole.CONSTRAINT, "limit": 5.0})
    changes = {"slug": "bound", "objectives": (toy.objectives[0], bound), "weights": None, "seed_program": BEST}
    lab.stores.catalog.add_problem(Problem.model_validate(toy.model_dump() | changes))
    run = lab.start(9, policy="external", problem="bound")
    lab.work()
    propose(lab.api, run, {"program": "x = 9.5\ny = 6\n", "parents": [1]})
    lab.work()
    assert "It violates y <= 5: mend that first." in result(lab, run, 2)["next"]

    async def listed() -> Any:
        async with McpClient(build_server(str(lab.api.http.base_url))) as client:
            answer = await client.call_tool("candidates", {"run": str(run), "which": "newest"})
            return json.loads(answer.content[0].text)["candidates"]

    assert [one.get("mark") for one in asyncio.run(listed())] == ["violates y <= 5", None]


def test_a_weighted_sum_that_tells_a_hidden_reward_is_shown_when_the_run_has_ended(lab: Lab) -> None:
    toy = toy_problem().model_dump(exclude={"evaluator", "kind", "slug"})
    cases = [{"input": [1], "expected": 1, "reward": "x"}, {"input": [2], "expected": 2, "reward": "y", "hidden": True}]
    hidden = Problem.model_validate(toy | {"slug": "hidden", "kind": "cases", "cases": cases})
    lab.stores.catalog.add_problem(hidden)
    sums: dict[str, list[float | None]] = {problem: [] for problem in ("toy", "hidden")}
    for problem, shown in sums.items():
        run = lab.start(2, policy="external", problem=problem)
        lab.work()
        shown.append(result(lab, run, 1)["scalar"])
        propose(lab.api, run, {"program": "x = 2\ny = 1\n"})
        lab.work()
        shown.append(result(lab, run, 1)["scalar"])
    weighted = hidden.scalarize((1.0, 9.0))
    assert sums == {"toy": [weighted, weighted], "hidden": [None, weighted]}


def test_an_answer_to_a_prompt_inherits_its_parents_and_repetition_with_a_key_adds_nothing(lab: Lab) -> None:
    run = lab.start(20, policy="external")
    early = refused(lab.api.post(f"/v1/runs/{run}:ask", {"wait_s": 0}), 409, "conflict")
    assert "has not evaluated its seed programs" in early["detail"]
    lab.work()
    answer = lab.api.post(f"/v1/runs/{run}:ask", {"count": 2})
    assert answer.status_code == 200, answer.text
    ask, other = answer.json()["items"]
    assert (ask["role"], [one["number"] for one in ask["parents"]]) == ("mutate", [1])
    assert ask["parents"][0]["program"] in ask["user"]
    assert "Evaluations left after this answer: 18." in ask["user"]
    assert ask["parents"][0]["rewards"].keys() == {"x", "y"}
    assert ask["system"]
    assert ask["ask"] != other["ask"]
    sent = {"completion": f"```python\n{BEST}```", "ask": ask["ask"], "model": "m"}
    receipts = propose(lab.api, run, sent, key="one")
    assert propose(lab.api, run, sent, key="one") == receipts
    changed = lab.api.http.post(
        f"/v1/runs/{run}/proposals", json={"proposals": [{"program": BEST}]}, headers={"Idempotency-Key": "one"}
    )
    refused(changed, 409, "conflict")
    assert "no prompt" in propose(lab.api, run, sent | {"ask": str(uuid4())})[0]["reason"]
    assert propose(lab.api, run, sent) == receipts
    (again,) = propose(lab.api, run, sent | {"completion": "```python\nx = 7\ny = 1\n```"})
    assert (again["status"], again["number"]) == ("refused", None)
    assert "is answered by candidate 2 already" in again["reason"]
    unreadable = {"completion": "I do not know.", "ask": other["ask"]}
    first, second = propose(lab.api, run, unreadable, sent | {"ask": other["ask"]})
    assert (first["status"], second["status"]) == ("rejected", "refused")
    assert propose(lab.api, run, sent | {"ask": other["ask"]})[0]["status"] == "accepted"
    lab.work()
    child = lab.api.get(f"/v1/runs/{run}/candidates/2").json()
    assert child["parents"] == [1]
    rollout = lab.api.get(f"/v1/rollouts/{child['rollout_id']}").json()
    assert (rollout["user"], rollout["seed"]) == (ask["user"], ask["seed"])
    (chosen,) = lab.api.post(f"/v1/runs/{run}:ask", {"parents": [2]}).json()["items"]
    assert BEST in chosen["user"]
    refused(lab.api.post(f"/v1/runs/{run}:ask", {"parents": [7]}), 422, "invalid-input")
    assert lab.api.get(f"/v1/runs/{run}").json()["spent"]["evaluations"] == 4


def test_a_prompt_names_the_latest_failures_once(lab: Lab) -> None:
    run = lab.start(20, policy="external")
    lab.work()
    propose(lab.api, run, *({"program": f"x = {i}\nz = 1\n"} for i in range(3)), {"completion": "I do not know."})
    lab.work()
    asks = lab.api.post(f"/v1/runs/{run}:ask", {"count": 16}).json()["items"]
    repairs = [ask for ask in asks if "Fix this first" in ask["user"]]
    assert all("failed, not_assigned: 'y'\n" in ask["user"] for ask in asks)
    assert all("failed, no_code_block: the answer has no code fence\n" in ask["user"] for ask in asks)
    assert not any("Recent failures" in ask["user"] for ask in asks)  # the attempts tell all of them
    assert {ask["parents"][0]["number"] for ask in repairs} <= {4}
    (chosen,) = lab.api.post(f"/v1/runs/{run}:ask", {"parents": [4]}).json()["items"]
    assert "Fix this first" in chosen["user"]


def test_a_run_of_another_policy_takes_proposals_and_credits_none_of_the_two(lab: Lab) -> None:
    lab.stores.catalog.add_policy(Policy(slug="agent", kind="external"))
    weak = scripted(["x = 1\ny = 9\n", "x = 2\ny = 9\n", "x = 3\ny = 9\n"], slug="weak")
    lab.stores.catalog.add_policy(weak)
    run = lab.start(40, policy="weak", lanes=2)
    lab.work(3)
    assert propose(lab.api, run, {"program": BEST}, policy="agent")[0]["status"] == "accepted"
    lab.work()
    record = lab.api.get(f"/v1/runs/{run}").json()
    assert (record["state"], record["spent"]["evaluations"]) == ("completed", 40)
    (unlock,) = lab.api.get(f"/v1/unlocks?run={run}&unlocks_only=true").json()["items"]
    assert unlock["ensemble"] == ["agent@1", "weak@1"]
    assert (unlock["proposed_by"], unlock["author"]) == ("agent@1", "local")
    assert lab.api.get("/v1/unlocks?policy=weak").json()["items"] == []
    (target,) = [t for t in lab.api.get("/v1/problems/toy/unlocks").json()["targets"] if t["unlock"]]
    assert [a["policy"] for a in target["attempts"]] == ["agent@1 + weak@1"]
    events = lab.api.get(f"/v1/runs/{run}/events").json()["items"]
    assert [e["data"]["lane"] for e in events if e["kind"] == "batch.proposed"].count(-1) == 1


def test_hints_reach_the_prompts_of_a_run_without_guidance(lab: Lab) -> None:
    run = lab.start(40, policy="external")
    lab.work()
    hint = lab.api.post(f"/v1/runs/{run}/guidance", {"text": "  Make y small. "})
    assert hint.status_code == 201, hint.text
    assert (hint.json()["text"], hint.json()["author"]) == ("Make y small.", "local")
    asks = lab.api.post(f"/v1/runs/{run}:ask", {"count": 20}).json()["items"]
    shown = [ask for ask in asks if "Make y small." in ask["user"]]
    assert 0 < len(shown) < 20
    propose(lab.api, run, {"program": BEST, "ask": shown[0]["ask"]})
    lab.work()
    listed = lab.api.get(f"/v1/runs/{run}/guidance").json()["items"]
    assert [(a["number"], a["judged"], a["won"]) for a in listed] == [(hint.json()["number"], 1, 1), (0, 0, 0)]
    sampled = lab.start(60, lanes=1)
    lab.work(2)
    assert lab.api.post(f"/v1/runs/{sampled}/guidance", {"text": "Make x large."}).status_code == 201
    lab.work()
    prompts = {r.user for r in lab.stores.queries.recorded(sampled)}
    assert any("Make x large." in prompt for prompt in prompts)
    lab.stores.catalog.add_policy(Policy(slug="silent", kind="program_mutator"))
    silent = lab.start(4, policy="silent")
    assert "reads no prompts" in str(
        refused(lab.api.post(f"/v1/runs/{silent}/guidance", {"text": "x"}), 422, "invalid-input")
    )
    refused(lab.api.post(f"/v1/runs/{sampled}/guidance", {"text": "late"}), 409, "conflict")
    refused(lab.api.post(f"/v1/runs/{sampled}/guidance", {"text": " "}), 422, "invalid-input")


def test_a_person_proposes_and_hints_on_the_pages(lab: Lab) -> None:
    run = lab.start(20, policy="external")
    lab.work()
    page = lab.api.get(f"/runs/{run}")
    assert "waits for proposals" in page.text
    form = lab.api.get(f"/runs/{run}/propose?parent=1")
    assert "x = 1" in form.text
    assert "No such" not in form.text
    origin = {"Origin": str(lab.api.http.base_url)}

    def send(path: str, **fields: str) -> Any:
        return lab.api.http.post(f"/runs/{run}/{path}", data=fields, headers=origin, follow_redirects=False)

    answer = send("propose", parent="1", program="```python\r\nx = 9\r\ny = 1\r\n```\r\n", rationale="larger & smaller")
    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{run}/proposals/2")
    waiting = lab.api.http.get(f"/runs/{run}/proposals/2", follow_redirects=True)
    assert "It waits for a free worker." in waiting.text
    assert "live?awaited=1" in waiting.text
    lab.work()
    settled = lab.api.http.get(f"/runs/{run}/proposals/2", follow_redirects=True)
    assert "proposed by local" in settled.text
    assert "larger &amp; smaller" in settled.text
    assert lab.api.get(f"/v1/runs/{run}/candidates/2").json()["program"] == BEST
    for path, fields, reason in (
        ("propose", {"parent": "77", "program": BEST}, "no candidate 77"),
        ("propose", {"parent": "x<b>", "program": BEST}, "is not the number"),
        ("guidance", {"text": " "}, "at least 1 character"),
    ):
        answer = send(path, **fields)
        assert (answer.status_code, reason in answer.text, "<b>" in answer.text) == (422, True, False), answer.text
    assert lab.api.get(f"/runs/{run}/propose?parent=99").status_code == 422
    assert send("guidance", text="<b>Symmetry</b>").status_code == 303
    shown = lab.api.get(f"/runs/{run}/prompts").text
    assert "&lt;b&gt;Symmetry" in shown
    assert "hint by local" in shown


def test_a_proposal_form_sent_twice_costs_one_evaluation(lab: Lab) -> None:
    run = lab.start(20, policy="external")
    lab.work()
    origin = {"Origin": str(lab.api.http.base_url)}

    def send(program: str, key: str, parent: str = "1") -> Any:
        fields = {"parent": parent, "program": program, "key": key}
        return lab.api.http.post(f"/runs/{run}/propose", data=fields, headers=origin, follow_redirects=False)

    (key,) = re.findall('name="key" value="([^"]+)"', lab.api.get(f"/runs/{run}/propose").text)
    sent = [send("x = 9\ny = 1\n", key), send("x = 9\ny = 1\n", key), send("x = 9\ny = 2\n", key)]
    assert [answer.headers["location"].rpartition("/")[2] for answer in sent] == ["2", "2", "3"]
    refused_form = send(BEST, key, parent="77")
    assert refused_form.status_code == 422
    assert key not in refused_form.text
    lab.work()
    assert lab.api.get(f"/v1/runs/{run}").json()["spent"]["evaluations"] == 3


def test_bad_requests_and_foreign_policies_are_refused(lab: Lab) -> None:
    run = lab.start(20, policy="external")
    path = f"/v1/runs/{run}/proposals"
    for bad in (
        {},
        {"program": BEST, "completion": BEST},
        {"program": BEST, "cost": -1},
        {"program": BEST, "parents": [0]},
        {"program": BEST, "ask": str(uuid4()), "parents": [1]},
        {"program": BEST, "rewards": {"x": 9}},
    ):
        refused(lab.api.post(path, {"proposals": [bad]}), 422, "invalid-input")
    refused(lab.api.post(path, {"proposals": []}), 422, "invalid-input")
    details = refused(
        lab.api.post(path, {"proposals": [{"program": BEST}], "policy": "scripted"}), 422, "invalid-input"
    )
    assert "--kind external" in str(details)
    refused(lab.api.post(path, {"proposals": [{"program": BEST}], "policy": "nobody"}), 404, "not-found")
    for body in (
        {"policy": {"external": 1, "scripted": 1}},
        {"mutator": "external"},
        {"policy": "external", "mutator": "scripted"},
    ):
        given = {"problem": "toy", "policy": "scripted", "budget": {"evaluations": 5}} | body
        details = refused(lab.api.post("/v1/runs", given), 422, "invalid-input")
        assert "takes proposals" in str(details)
    lab.api.post(f"/v1/runs/{run}:pause", {})
    assert "Resume it" in str(refused(lab.api.post(path, {"proposals": [{"program": BEST}]}), 409, "conflict"))


def test_a_token_to_propose_reads_and_proposes_and_creates_nothing(lab: Lab, serve: Any, settings: Any) -> None:
    run = lab.start(20, policy="external")
    lab.work()
    secret = "o" * 32
    guarded = serve(settings.model_copy(update={"token": type(settings.database_url)(secret)}))
    operator = {"Authorization": f"Bearer {secret}"}
    guarded.post("/v1/projects", {"slug": "other"}, headers=operator)

    def bearer(scope: Scope, project: str = "default") -> dict[str, str]:
        made = guarded.post(
            "/v1/tokens", {"name": f"agent-{scope}", "scope": scope}, headers=operator | {"Speciate-Project": project}
        )
        return {"Authorization": f"Bearer {made.json()['token']}"}

    mine, reader, stranger = bearer(Scope.PROPOSE), bearer(Scope.READ), bearer(Scope.PROPOSE, "other")
    path, body = f"/v1/runs/{run}/proposals", {"proposals": [{"program": BEST}]}
    refused(guarded.post(path, body, headers=reader), 403, "forbidden")
    form = f"/runs/{run}/propose"
    assert "needs a token with scope propose; yours has scope read" in guarded.get(form, headers=reader).text
    assert "needs a token" not in guarded.get(form, headers=mine).text
    refused(guarded.post(path, body, headers=stranger), 404, "not-found")
    refused(guarded.post("/v1/runs", {}, headers=mine), 403, "forbidden")
    (receipt,) = guarded.post(path, body, headers=mine).json()["items"]
    found: list[Any] = []
    waited = f"{path}/{receipt['number']}?wait=20"
    waiter = threading.Thread(target=lambda: found.append(guarded.get(waited, headers=reader).json()))
    waiter.start()
    lab.work()
    waiter.join(30)
    assert (found[0]["state"], found[0]["confirmed"]) == ("evaluated", ["both", "half"])
    (unlock,) = guarded.get(f"/v1/unlocks?run={run}&unlocks_only=true", headers=mine).json()["items"]
    assert unlock["author"].endswith(" agent-propose")


def test_proposals_in_parallel_are_each_booked_once_within_the_budget(lab: Lab) -> None:
    run = lab.start(41, policy="external")
    lab.work()

    def send(worker: int) -> None:
        for i in range(10):
            propose(lab.api, run, {"program": f"x = {worker}.{i:03}1\ny = 5\n"})

    threads = [threading.Thread(target=send, args=(worker,)) for worker in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lab.work()
    record = lab.api.get(f"/v1/runs/{run}").json()
    assert (record["state"], record["spent"]["evaluations"]) == ("completed", 41)
    numbers = [c["number"] for c in lab.api.get(f"/v1/runs/{run}/candidates?limit=100").json()["items"]]
    assert sorted(numbers) == [*range(1, 42)]


def test_a_search_in_another_program_is_named(lab: Lab) -> None:
    run = lab.start(8, policy="external")
    lab.work()
    propose(lab.api, run, {"program": "x = 3\nextra = 1\ny = 4\n", "parents": [1]})
    lab.work()
    edit = "<<<<<<< SEARCH\nextra = 1\n=======\nextra = 2\n>>>>>>> REPLACE\n"
    (receipt,) = propose(lab.api, run, {"completion": edit, "parents": [1], "inspirations": [2]})
    assert receipt["reason"].startswith(
        "diff_search_not_found: It is in Program 2; the program to change is Program 1."
    )
    assert receipt["reason"].endswith("\nOr answer with the whole program in one code fence, as asked.")


class _UnsteadySeed(ToyEvaluator):
    """Adds -1, 0, 1, … to the rewards of the seed program in turn; other programs have no noise."""

    def evaluate(
        self, problem: Problem, programs: Sequence[str], *, seeds: Sequence[int], timeout_s: float | None = None
    ) -> list[Evaluation]:
        found = super().evaluate(problem, programs, seeds=seeds)
        turns = iter((-1.0, 0.0, 1.0) * len(programs))
        return [
            replace(each, rewards=tuple(x + next(turns) for x in each.rewards or ())) if text == SEED_PROGRAM else each
            for text, each in zip(programs, found, strict=True)
        ]


def test_what_a_noisy_run_needs_to_confirm_a_target_is_measured_without_being_sent_again(lab: Lab) -> None:
    lab.stores.catalog.add_problem(toy_problem().model_copy(update={"slug": "noisy", "stochastic": True}))
    run, evaluator = lab.start(20, policy="external", problem="noisy"), _UnsteadySeed()
    lab.work(evaluator=evaluator)
    propose(lab.api, run, {"program": "x = 8.5\ny = 1.5\n", "parents": [1]})
    lab.work(1, evaluator=evaluator)
    first = result(lab, run, 4)
    assert (first["rewards"], first["targets"], first["best"]) == ({"x": 8.5, "y": 1.5}, ["half"], True)
    assert "both (missing: certainty, by one standard error)" in first["summary"]
    (asked,) = lab.api.post(f"/v1/runs/{run}:ask", {}).json()["items"]
    assert "All targets are met" not in asked["user"]
    lab.work(evaluator=evaluator)
    assert result(lab, run, 4)["confirmed"] == ["both", "half"]
    assert evaluator.evaluated.count("x = 8.5\ny = 1.5\n") == 3 + 1  # trials, and the confirmation
    record = lab.api.get(f"/v1/runs/{run}").json()
    assert (record["state"], record["spent"]["evaluations"]) == ("running", 6)
    lab.work(evaluator=evaluator)
    assert len(propose(lab.api, run, *({"program": f"x = {i}\ny = 9\n"} for i in range(14)))) == 14
    lab.work(evaluator=evaluator)
    record = lab.api.get(f"/v1/runs/{run}").json()
    assert (record["state"], record["spent"]["evaluations"]) == ("completed", 20)


def test_a_text_sent_as_program_is_taken_whole(lab: Lab) -> None:
    text = "# T\n\n```sh\nls\n```\nEND\n"
    changes = {"kind": ProblemKind.IN_PROCESS, "evaluator": "def evaluate(program): ...", "cases": ()}
    language = Language(name="Markdown", file="notes.md")
    changes |= {"slug": "notes", "language": language, "seed_program": "# T\n"}
    lab.stores.catalog.add_problem(toy_problem().model_copy(update=changes))
    run = lab.start(9, problem="notes", policy="external")
    (receipt,) = propose(lab.api, run, {"program": text})
    assert receipt["status"] == "accepted"
    with lab.stores.engine.connect() as connection:
        payloads = connection.execute(sa.text("SELECT payload::text FROM work")).scalars().all()
    assert any(json.dumps(text)[1:-1] in payload for payload in payloads)


def test_the_next_step_of_a_paused_or_spent_run_waits() -> None:
    record = ProposalRecord.model_construct(
        number=2, state=ProposalState.PENDING, confirming=(), refuted=(), failure=None, failure_reason=None,
        duplicate_of=None, best=False, elite=False,
    )  # fmt: skip
    problem = toy_problem()
    assert next_step(record, RunState.RUNNING, None, 0, problem, 0) == "Wait for its result."
    assert next_step(record, RunState.PAUSED, "disk full", 5, problem, 0).startswith("The run is paused (disk full)")
    assert "ask for another prompt meanwhile" in next_step(record, RunState.RUNNING, None, 5, problem, 0)
