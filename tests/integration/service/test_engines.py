"""Sessions of engines through the API: leases, answers of the model, evaluations, budgets, ends, and tournaments."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from speciate.client import Client
from speciate.domain.policy import Policy
from speciate.domain.problem import Problem
from speciate.engines.relay import Relay
from tests.integration.service.conftest import Lab, refused
from tests.integration.service.tournament_lab import body, declare, fair, play
from tests.support.openai_endpoint import Endpoint, serve
from tests.support.runs import toy_policy, toy_problem

__all__ = ["fair"]

pytestmark = pytest.mark.servers

CHAT = [{"role": "system", "content": "You write programs."}, {"role": "user", "content": "Improve x."}]


def started(lab: Lab, evaluations: int = 6, **changes: Any) -> UUID:
    """Start a run whose candidates an engine proposes, and evaluate its seed program."""
    if not lab.api.get("/v1/policies", params={"slug": "model"}).json()["items"]:
        options = {"completions": ["x = 9"], "tokens_per_completion": 5}
        lab.stores.catalog.add_policy(toy_policy(slug="model", options=options))
    run = {"problem": "toy", "policy": "model", "engine": "mine", "budget": {"evaluations": evaluations}, **changes}
    answer = lab.api.post("/v1/runs", run)
    assert answer.status_code == 202, answer.text
    lab.work()
    return UUID(answer.json()["id"])


def acquire(lab: Lab, **changes: Any) -> dict[str, Any] | None:
    answer = lab.api.post("/v1/engine-sessions:acquire", {"versions": {"mine": "1.2"}, **changes})
    assert answer.status_code == 200, answer.text
    return next(iter(answer.json()["items"]), None)


def session_of(lab: Lab, **changes: Any) -> str:
    session = acquire(lab, **changes)
    assert session is not None
    return str(session["id"])


def evaluate(lab: Lab, session: str, program: str, key: str = "") -> Any:
    """Propose a program, work, and return the answer to the same request."""
    headers = {"Idempotency-Key": key or str(uuid4())}
    sent = {"program": program, "wait_s": 0}
    answer = lab.api.http.post(f"/v1/engine-sessions/{session}/evaluations", json=sent, headers=headers)
    if answer.status_code == 200 and answer.json()["pending"]:
        lab.work()
        answer = lab.api.http.post(f"/v1/engine-sessions/{session}/evaluations", json=sent, headers=headers)
    return answer


def end(lab: Lab, session: str, outcome: str, **more: Any) -> None:
    answer = lab.api.post(f"/v1/engine-sessions/{session}:end", {"outcome": outcome, **more})
    assert answer.status_code == 200, answer.text


def run_of(lab: Lab, run: UUID) -> dict[str, Any]:
    return dict(lab.api.get(f"/v1/runs/{run}").json())


def test_an_engine_asks_the_model_evaluates_and_ends_with_its_budget(lab: Lab) -> None:
    run = started(lab, evaluations=3)
    session = acquire(lab, engines=["mine"])
    assert session is not None
    assert (session["engine"], session["attempt"], session["evaluations"], session["evaluations_left"]) == (
        "mine", 1, 3, 2,
    )  # fmt: skip
    assert session["objectives"] == {"x": {"low": 0.0, "high": 10.0}, "y": {"low": 10.0, "high": 0.0}}
    assert acquire(lab) is None, "another runner leased the same run"
    id_ = session["id"]

    answer = lab.api.post(f"/v1/engine-sessions/{id_}/completions", {"messages": CHAT, "n": 2}).json()
    assert (answer["completions"], answer["completion_tokens"]) == (["x = 9", "x = 9"], 10)
    assert run_of(lab, run)["spent"]["tokens"] == answer["prompt_tokens"] + 10
    (rollout, *_) = lab.api.get(f"/v1/runs/{run}/rollouts").json()["items"]
    stored = lab.api.get(f"/v1/rollouts/{rollout['id']}").json()
    assert (stored["system"], stored["user"], stored["completion"]) == ("You write programs.", "Improve x.", "x = 9")

    seed = evaluate(lab, id_, session["seed_program"]).json()
    assert (seed["number"], run_of(lab, run)["spent"]["evaluations"]) == (1, 1), "the seed program cost twice"
    first = evaluate(lab, id_, "x = 6\ny = 5\n", key="a").json()
    assert (first["number"], first["score"], first["rewards"]) == (2, 0.55, {"x": 6.0, "y": 5.0})
    assert evaluate(lab, id_, "x = 6\ny = 5\n", key="a").json() == first, "a repeated request cost an evaluation"
    last = evaluate(lab, id_, "import os\n").json()
    assert (last["score"], last["failure"], last["evaluations_left"]) == (0.0, "invalid_output", 0)
    refused(evaluate(lab, id_, "x = 9\ny = 0\n"), 410, "budget-spent")
    refused(lab.api.post(f"/v1/engine-sessions/{id_}/completions", {"messages": CHAT}), 410, "budget-spent")
    end(lab, id_, "finished", processor_s=1.5, refused={"score": 2})
    record = run_of(lab, run)
    assert (record["state"], record["spent"]["evaluations"]) == ("completed", 3)
    refused(lab.api.post(f"/v1/engine-sessions/{id_}/completions", {"messages": CHAT}), 409, "conflict")


@pytest.mark.parametrize(
    ("hidden", "constraint", "scores"),
    [(True, False, [0.25, 0.25]), (True, True, [0.5, 0.5]), (False, False, [0.7, 0.3]), (False, True, [0.5, 0.05])],
)
def test_an_engine_learns_hidden_rewards_from_no_score(
    lab: Lab, *, hidden: bool, constraint: bool, scores: list[float]
) -> None:
    toy = toy_problem().model_dump(exclude={"evaluator", "kind", "slug"})
    cases = [{"input": [i], "expected": 1, "reward": o["name"]} for i, o in enumerate(toy["objectives"])]
    cases[1]["hidden"] = hidden
    if constraint:
        toy["objectives"][1].update(role="constraint", limit=5.0)
        toy["weights"] = {"x": 1.0}
    lab.stores.catalog.add_problem(Problem.model_validate(toy | {"slug": "cases", "kind": "cases", "cases": cases}))
    started(lab, problem="cases")
    session = acquire(lab)
    assert session is not None
    assert ("y" in session["objectives"]) is not hidden
    answers = [evaluate(lab, session["id"], f"x = 5\ny = {y}\n").json() for y in (1, 9)]
    assert [answer["score"] for answer in answers] == pytest.approx(scores)
    assert all(("y" in answer["rewards"]) is not hidden for answer in answers)


def test_a_budget_of_tokens_holds_back_requests(lab: Lab) -> None:
    run = started(lab, budget={"evaluations": 50, "tokens": 100})
    session = session_of(lab)
    path = f"/v1/engine-sessions/{session}/completions"
    codes = [lab.api.post(path, {"messages": CHAT}).status_code for _ in range(40)]
    assert set(codes) == {200, 410}
    assert codes == sorted(codes)
    assert run_of(lab, run)["spent"]["tokens"] <= 100
    end(lab, session, "finished", reason="out of tokens")
    assert (run_of(lab, run)["state"], run_of(lab, run)["reason"]) == ("completed", "out of tokens")


def test_a_lost_runner_is_replaced_and_the_third_loss_fails_the_run(lab: Lab) -> None:
    run = started(lab)
    for attempt in (1, 2, 3):
        session = acquire(lab)
        assert session is not None
        assert session["attempt"] == attempt
        assert evaluate(lab, session["id"], f"x = {attempt}\ny = 5\n", key="1").status_code == 200
        with lab.stores.engine.begin() as connection:
            connection.execute(text("UPDATE engine_sessions SET lease_until = now() - interval '1 second'"))
    assert acquire(lab) is None
    record = run_of(lab, run)
    assert (record["state"], record["spent"]["evaluations"]) == ("failed", 4)
    assert record["reason"] == "engine mine lost its runner 3 times"
    refused(evaluate(lab, session["id"], "x = 8\ny = 5\n"), 409, "conflict")


def test_a_released_run_is_offered_again_and_a_failed_engine_fails_it(lab: Lab) -> None:
    run = started(lab)
    end(lab, session_of(lab), "released")
    again = acquire(lab, run=str(run))
    assert again is not None
    assert again["attempt"] == 1
    end(lab, again["id"], "failed", reason="exit code 1: ImportError")
    end(lab, again["id"], "finished")  # too late
    assert (run_of(lab, run)["state"], run_of(lab, run)["reason"]) == ("failed", "exit code 1: ImportError")


def test_an_engine_that_has_finished_is_not_started_again_while_its_last_program_is_confirmed(lab: Lab) -> None:
    run = started(lab)
    session = session_of(lab)
    headers = {"Idempotency-Key": "last"}
    path = f"/v1/engine-sessions/{session}/evaluations"
    lab.api.http.post(path, json={"program": "x = 9\ny = 0\n", "wait_s": 0}, headers=headers)
    end(lab, session, "finished")
    assert run_of(lab, run)["state"] == "running"
    assert acquire(lab) is None
    lab.work()
    record = run_of(lab, run)
    assert (record["state"], record["reason"]) == ("completed", "the engine has finished")
    assert record["spent"]["evaluations"] == 2


def test_a_paused_run_stops_its_engine(lab: Lab) -> None:
    run, session = started(lab), session_of(lab)
    renewed = lab.api.post(f"/v1/engine-sessions/{session}:renew", {}).json()
    assert renewed["lease_until"] is not None
    lab.api.post(f"/v1/runs/{run}:pause")
    assert lab.api.post(f"/v1/engine-sessions/{session}:renew", {}).json()["lease_until"] is None
    refused(lab.api.post(f"/v1/engine-sessions/{session}/completions", {"messages": CHAT}), 409, "conflict")
    end(lab, session, "released")
    assert acquire(lab) is None
    lab.api.post(f"/v1/runs/{run}:resume")
    assert acquire(lab) is not None


def test_the_end_of_an_engine_does_not_move_the_end_of_its_run(lab: Lab) -> None:
    run = started(lab)
    session = session_of(lab)
    lab.api.post(f"/v1/runs/{run}:cancel")
    ended = run_of(lab, run)["finished_at"]
    end(lab, session, "released")
    assert run_of(lab, run)["finished_at"] == ended


def test_others_propose_nothing_in_the_run_of_an_engine(lab: Lab) -> None:
    run = started(lab)
    proposals = {"proposals": [{"program": "x = 1\ny = 1\n"}]}
    told = refused(lab.api.post(f"/v1/runs/{run}/proposals", proposals), 409, "conflict")
    assert "engine 'mine' only" in told["detail"]
    refused(lab.api.post(f"/v1/engine-sessions/{uuid4()}/completions", {"messages": CHAT}), 404, "not-found")
    session = session_of(lab)
    refused(evaluate(lab, session, "  "), 422, "invalid-input")
    refused(lab.api.post(f"/v1/engine-sessions/{session}/evaluations", {"program": "x = 1"}), 422, "invalid-input")
    scored = {"program": "x = 1\ny = 1\n", "score": 1.0}
    headers = {"Idempotency-Key": "s"}
    answer = lab.api.http.post(f"/v1/engine-sessions/{session}/evaluations", json=scored, headers=headers)
    refused(answer, 422, "invalid-input")
    mutator = {"problem": "toy", "policy": "mutator", "engine": "mine", "budget": {"evaluations": 5}}
    told = refused(lab.api.post("/v1/runs", mutator), 422, "invalid-input")
    assert "does not answer every prompt with one text" in told["detail"]


def test_engines_and_external_proposers_enter_tournaments(fair: Lab) -> None:
    own, _ = body()["entrants"]
    entrants = [
        own,
        {"name": "engine", "policy": "good", "engine": "mine", "engine_options": {"k": 2}},
        {"name": "agent", "policy": "external"},
    ]
    declare(fair, entrants=entrants, seeds=[3], metric="best_score")
    assert fair.api.get("/tournaments/first").status_code == 200  # without a score to draw
    play(fair, passes=30)
    record = fair.api.get("/v1/tournaments/first").json()
    assert (record["started"], record["ended"], record["state"]) == (9, 3, "running")
    assert record["reason"] == "waits for engine 'mine' (speciate engines run mine --command \"python …\")"
    assert acquire(fair, tournament="first", engines=["mine"]) is not None
    play(fair, passes=3)
    assert fair.api.get("/v1/tournaments/first").json()["reason"] is None
    with fair.stores.engine.begin() as connection:  # the runner was killed
        connection.execute(text("UPDATE engine_sessions SET lease_until = now() - interval '1 second'"))
    play(fair, passes=3)
    assert fair.api.get("/v1/tournaments/first").json()["reason"] == record["reason"]
    while (session := acquire(fair, tournament="first", engines=["mine"])) is not None:
        assert session["engine_options"] == {"k": 2}
        session_run = session["run_id"]
        for x in range(6):
            fair.api.post(f"/v1/engine-sessions/{session['id']}/completions", {"messages": CHAT})
            assert evaluate(fair, session["id"], f"x = {x + 4}\ny = 1\n").status_code == 200
        refused(evaluate(fair, session["id"], "x = 8\ny = 0\n"), 410, "budget-spent")
        end(fair, session["id"], "finished", processor_s=2, refused={"score": 1})
    rows = fair.api.get("/v1/tournaments/first/export").text.splitlines()
    assert len(rows) == 9
    for run in fair.api.get("/v1/runs", params={"policy": "external", "limit": 50}).json()["items"]:
        proposals = [{"program": f"x = {x}\ny = 3\n"} for x in range(6)]
        answer = fair.api.post(f"/v1/runs/{run['id']}/proposals", {"proposals": proposals})
        assert answer.status_code == 200, answer.text
    play(fair, passes=30)
    assert fair.api.get("/v1/tournaments/first").json()["state"] == "completed"
    report = fair.api.get("/v1/tournaments/first/report").json()
    assert [cost["evaluations"] for cost in report["costs"]] == [21, 21, 21]
    entrants_of = {cost["entrant"]: cost for cost in report["costs"]}
    assert entrants_of["engine"]["tokens"] > 0
    assert [each["strategy"] for each in report["standings"]["standings"]] == [
        "best_of_n", "engine:mine", "vector_evolution",
    ]  # fmt: skip
    page = fair.api.get("/tournaments/first").text
    assert "mean best score on 3 problems: " in page
    assert "Best score against evaluations" in page
    assert "engine:mine" in fair.api.get(f"/runs/{session_run}").text
    unlocks = fair.api.get("/v1/unlocks", params={"strategy": "engine:mine"}).json()["items"]
    assert {unlock["policy"] for unlock in unlocks} == {"good"}
    (engine,) = (each for each in report["executions"] if each["entrant"] == "engine")
    assert (engine["versions"], engine["processor_s"], engine["refused"]) == (["1.2"], 6.0, {"score": 3})
    (standing,) = (each for each in report["standings"]["comparisons"] if each["a"] == "engine")
    assert standing["difference"]["value"] is not None


def asking(lab: Lab, endpoint: Endpoint, max_tokens: int, **options: object) -> None:
    """Add the policy that engines ask, a model of an endpoint."""
    policy = {"slug": "model", "kind": "openai_compatible", "base_url": endpoint.url, "model": "m", "options": options}
    lab.stores.catalog.add_policy(Policy.model_validate({**policy, "sampling": {"max_tokens": max_tokens}}))


def test_requests_in_flight_do_not_end_an_engine_with_a_budget_of_tokens(lab: Lab) -> None:
    """Each reserves a third of the budget and more, and gives nearly all of it back."""
    with serve() as endpoint:
        endpoint.delay_s = 0.5
        asking(lab, endpoint, 1000)
        run = started(lab, budget={"evaluations": 50, "tokens": 3000}, engine_options={"concurrency": 3})
        with Client(str(lab.api.http.base_url)) as client:
            session = client.engines.acquire()
            assert session is not None
            with Relay(client.engines, session) as relay, ThreadPoolExecutor(3) as pool:
                path, chat = f"{relay._root}/v1/chat/completions", json.dumps({"messages": CHAT}).encode()
                answers = [*pool.map(lambda _: relay.answer(path, chat), range(3))]
    assert [status for status, _ in answers] == [200, 200, 200]
    assert 0 < run_of(lab, run)["spent"]["tokens"] < 1000


@pytest.mark.parametrize(("tokens", "reason"), [(900, "refused"), (5000, "stop")])
def test_further_attempts_of_a_request_are_reserved(lab: Lab, tokens: int, reason: str) -> None:
    chats = iter(range(10))
    with serve() as endpoint:
        endpoint.misbehave = lambda _: (504, {}, b"") if next(chats) < 2 else None
        asking(lab, endpoint, 100, check=False, backoff_s=0.01, max_retries=3)
        run = started(lab, budget={"evaluations": 50, "tokens": tokens})  # one attempt reserves 651
        answer = lab.api.post(f"/v1/engine-sessions/{session_of(lab)}/completions", {"messages": CHAT})
    assert answer.json()["finish_reason"] == reason, answer.text
    with lab.stores.engine.connect() as connection:
        reserved = connection.execute(text("SELECT reserved_tokens FROM run_progress")).scalar()
    assert (0 < run_of(lab, run)["spent"]["tokens"] <= tokens, reserved) == (True, 0)
