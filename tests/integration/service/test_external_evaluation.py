"""External evaluation through the API: leases, exactly-once booking, refusals, cascades and confirmations."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from speciate.domain.access import Scope
from speciate.domain.candidate import ATTESTED, REFUSED_REWARDS
from speciate.domain.capabilities import CALLABLE
from speciate.domain.problem import Problem
from speciate.policies import build_client
from speciate.runs.executor import WorkExecutor
from speciate.runs.external_evaluation import MAX_EXTERNAL_ATTEMPTS
from speciate.storage.stores import Stores
from speciate.storage.work.waiting_runs import report_waiting
from tests.integration.service.conftest import Api, Lab, refused, scripted
from tests.support.runs import ToyEvaluator, toy_problem


def external(**changes: Any) -> Problem:
    """The toy problem, evaluated outside the service."""
    changed = toy_problem().model_dump(mode="json") | {"evaluator": "", "evaluation": "external"} | changes
    return Problem.model_validate(changed)


@pytest.fixture
def outside(api: Api, stores: Stores) -> Lab:
    stores.catalog.add_problem(external())
    stores.catalog.add_policy(scripted())
    return Lab(api, stores)


def work(lab: Lab) -> None:
    """Do the work that workers can do now: parked units wait for results."""
    executor = WorkExecutor(lab.stores.work, lab.stores.signals, ToyEvaluator(), build_client)
    while any(executor.execute(unit.work_id) for unit in lab.stores.runs.work_in_flight()):
        pass


def acquire(api: Api, count: int = 100, **body: Any) -> list[dict[str, Any]]:
    answer = api.post("/v1/evaluations:acquire", {"count": count, **body})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def measured(candidate: dict[str, Any]) -> dict[str, Any]:
    """An honest result of a toy program."""
    x, y = (float(value) for value in re.findall(r"= *([0-9.]+)", candidate["program"]))
    return {"id": candidate["id"], "lease": candidate["lease"], "rewards": {"x": x, "y": y}, "wall_s": 2.5}


def submit(api: Api, *results: dict[str, Any]) -> list[dict[str, Any]]:
    answer = api.post("/v1/evaluations:submit", {"results": list(results)})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def drive(lab: Lab) -> None:
    """Work and evaluate until the run has nothing to do."""
    work(lab)
    while found := acquire(lab.api):
        assert {one["status"] for one in submit(lab.api, *map(measured, found))} == {"booked"}
        work(lab)


def test_a_run_is_evaluated_outside_and_its_unlock_is_attested(outside: Lab) -> None:
    run = outside.start(9)
    work(outside)
    (seed,) = acquire(outside.api)
    assert (seed["problem"], seed["number"], seed["objectives"]) == ("toy@1", 1, ["x", "y"])
    assert seed["files"] == {"program.py": seed["program"]} or list(seed["files"].values()) == [seed["program"]]
    assert submit(outside.api, measured(seed)) == [{"id": seed["id"], "status": "booked", "reason": ""}]
    drive(outside)
    record = outside.api.get(f"/v1/runs/{run}").json()
    assert (record["state"], record["spent"]["evaluations"]) == ("completed", 9)
    (unlock,) = outside.api.get(f"/v1/unlocks?run={run}&unlocks_only=true").json()["items"]
    assert (unlock["attested"], unlock["forgeable"], unlock["state"]) == (True, False, "confirmed")
    candidates = outside.api.get(f"/v1/runs/{run}/candidates").json()["items"]
    assert {(c["tier"], c["attested_by"]) for c in candidates if not c["duplicate_of"]} == {(ATTESTED, "local")}
    assert outside.api.get("/v1/problems/toy/unlocks").json()["attested"]
    assert "attested" in outside.api.get("/unlocks").text
    assert "Attested by" in outside.api.get(f"/runs/{run}/candidates/1").text


def test_a_lie_is_refused_with_a_reason_and_nothing_is_counted_twice(outside: Lab, stores: Stores) -> None:
    run = outside.start(5)
    work(outside)
    (seed,) = acquire(outside.api)
    honest = measured(seed)
    assert acquire(outside.api) == []

    def reason(**changes: Any) -> str:
        (outcome,) = submit(outside.api, honest | changes)
        assert outcome["status"] == "refused"
        return str(outcome["reason"])

    assert "another evaluator" in reason(lease=str(uuid4()))
    assert "no such evaluation" in reason(id=str(uuid4()))
    assert "missing y" in reason(rewards={"x": 1.0})
    assert "unknown z" in reason(rewards={"x": 1.0, "y": 1.0, "z": 0.0})
    assert "its declared range allows at most 10" in reason(rewards={"x": 1e9, "y": 1.0})
    assert "its declared range allows at least 0" in reason(rewards={"x": 1.0, "y": -1.0})
    for body in ('{"x": NaN, "y": 1}', '{"x": 1e999, "y": 1}', '{"x": "1", "y": 1}'):
        text = f'{{"results": [{{"id": "{seed["id"]}", "lease": "{seed["lease"]}", "rewards": {body}}}]}}'
        answer = outside.api.http.post(
            "/v1/evaluations:submit", content=text, headers={"content-type": "application/json"}
        )
        assert answer.status_code in {400, 422}, answer.text
    feedback = honest | {"feedback": {"log": "x" * 10_000_000}}
    refused(outside.api.post("/v1/evaluations:submit", {"results": [feedback]}), 422, "invalid-input")

    lease = {"id": seed["id"], "lease": seed["lease"]}
    for reserved in ("worker_lost", "batch_deadline", "supervisor_killed", "invalid_rewards", "evaluator_raised"):
        (outcome,) = submit(outside.api, lease | {"failure": {"kind": "crashed", "reason": reserved}})
        assert (outcome["status"], "reserved" in outcome["reason"]) == ("refused", True)

    assert [one["status"] for one in submit(outside.api, honest, honest)] == ["booked", "booked"]
    assert submit(outside.api, honest)[0]["status"] == "booked"
    assert "another result was booked" in reason(rewards={"x": 9.0, "y": 0.0})
    work(outside)
    assert submit(outside.api, honest)[0]["status"] == "booked"
    (candidate,) = outside.api.get(f"/v1/runs/{run}/candidates").json()["items"]
    assert candidate["rewards"] == {"x": 1.0, "y": 9.0}  # the first result
    assert outside.api.get(f"/v1/runs/{run}").json()["spent"]["evaluations"] == 1


def evaluate(lab: Lab, tmp_path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run ``speciate evaluate`` as a user does."""
    environment = os.environ | {"SPECIATE_URL": str(lab.api.http.base_url), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "speciate.cli", "evaluate", "--idle", "1", *args]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_the_command_evaluate_names_missing_capabilities_and_stops_at_a_broken_command(
    api: Api, stores: Stores, tmp_path: Path
) -> None:
    stores.catalog.add_problem(external(capabilities=["linux"]))
    stores.catalog.add_policy(scripted())
    lab = Lab(api, stores)
    run = lab.start(9)
    work(lab)
    idle = evaluate(lab, tmp_path, "--", "true")
    assert "1 candidate of toy@1 left out: add --capability linux." in idle.stderr
    assert idle.returncode == 0

    broken = evaluate(lab, tmp_path, "--capability", "linux", "--", sys.executable, "no-such-file.py")
    assert broken.returncode == 1
    assert "the evaluator fails for the seed program of toy@1: exit status 2" in broken.stderr
    for printed, why in (('{"x": 1, "why": 2}', "missing y"), ('{"x": 1, "no name": 2}', "no name")):
        misspelled = tmp_path / "misspelled.sh"
        misspelled.write_text(f"#!/bin/sh\necho '{printed}'\n")
        misspelled.chmod(0o755)
        broken = evaluate(lab, tmp_path, "--capability", "linux", "--", str(misspelled))
        assert (broken.returncode, why in broken.stderr) == (1, True), broken.stderr
    # Nothing was booked, and others get the candidate at once.
    (seed,) = acquire(api, capabilities=["linux"])
    assert (seed["number"], seed["run_id"]) == (1, str(run))
    # An evaluator that reports refused rewards as a failure pauses the run, as one of the service does.
    failure = {"kind": "invalid_output", "reason": REFUSED_REWARDS, "detail": "missing y"}
    submit(api, {"id": seed["id"], "lease": seed["lease"], "failure": failure})
    work(lab)
    record = api.get(f"/v1/runs/{run}").json()
    assert (record["state"], record["diagnosis"]["fault"]) == ("paused", "evaluator")


def test_a_run_says_that_it_waits_for_an_evaluator_and_with_which_capabilities(
    api: Api, stores: Stores, tmp_path: Path
) -> None:
    stores.catalog.add_problem(external(capabilities=["gpu", "linux"]))
    stores.catalog.add_policy(scripted())
    lab = Lab(api, stores)
    run = lab.start(9)
    work(lab)
    report_waiting(stores.engine, [set()], after_s=0)
    record = stores.runs.get(run)
    command = "`speciate evaluate --problem toy@1 --capability gpu --capability linux -- COMMAND`"
    assert (record.outcome, record.cause) == ("waiting", f"waits for an external evaluator: {command}")
    assert command in api.get(f"/runs/{run}").text
    assert command in api.get("/").text
    assert '<span class="state waiting">waiting</span>' in api.get("/runs").text
    refusal = refused(api.post(f"/v1/runs/{run}:ask", {"wait_s": 0}), 409, "conflict")
    assert f"seed programs yet (waits for an external evaluator: {command}). Ask again" in refusal["detail"]
    acquire(api, capabilities=["gpu", "linux"])
    report_waiting(stores.engine, [set()], after_s=0)
    assert stores.runs.get(run).outcome == "running"

    stores.catalog.add_problem(toy_problem().model_copy(update={"slug": "inside"}))
    inside = lab.start(9, problem="inside")
    for option, name in (("--problem", "inside"), ("--run", str(inside))):
        ended = evaluate(lab, tmp_path, option, name, "--", "true")
        assert ended.returncode == 4
        assert "Problem inside@1" in ended.stderr
        assert "has kind 'evaluator' and no external evaluation" in ended.stderr


def test_a_lapsed_lease_is_offered_again_and_a_candidate_without_evaluator_fails(outside: Lab, stores: Stores) -> None:
    run = outside.start(1)
    work(outside)
    (first,) = acquire(outside.api, lease_s=60)
    leases = {"leases": [{"id": first["id"], "lease": first["lease"]}]}
    (renewed,) = outside.api.post("/v1/evaluations:heartbeat", leases | {"lease_s": 600}).json()["items"]
    assert renewed["lease_until"] > first["lease_until"]
    for _ in range(3):  # a repetition changes nothing
        outside.api.post("/v1/evaluations:heartbeat", leases | {"lease_s": 0})
    (second,) = acquire(outside.api)
    assert (second["id"], second["attempt"]) == (first["id"], 1)  # giving back is no failed attempt
    assert outside.api.post("/v1/evaluations:heartbeat", leases).json()["items"][0]["lease_until"] is None
    assert submit(outside.api, measured(first))[0]["status"] == "refused"
    for attempt in range(2, MAX_EXTERNAL_ATTEMPTS + 1):
        lapse(stores)
        (again,) = acquire(outside.api)
        assert again["attempt"] == attempt
    lapse(stores)
    assert acquire(outside.api) == []
    for commit in stores.evaluations.fail_lapsed():
        stores.signals.committed(commit)
    work(outside)
    (candidate,) = outside.api.get(f"/v1/runs/{run}/candidates").json()["items"]
    assert (candidate["failure"], candidate["failure_reason"]) == ("crashed", "worker_lost")


def test_a_confirmation_without_evaluator_pauses_the_run_and_refutes_no_target(outside: Lab, stores: Stores) -> None:
    stores.catalog.add_problem(external(slug="good", seed_program="x = 9\ny = 1\n"))
    run = outside.start(1, problem="good")
    work(outside)
    submit(outside.api, *map(measured, acquire(outside.api)))
    work(outside)
    for _ in range(MAX_EXTERNAL_ATTEMPTS):
        assert acquire(outside.api)
        lapse(stores)
    for commit in stores.evaluations.fail_lapsed():
        stores.signals.committed(commit)
    work(outside)
    record = outside.api.get(f"/v1/runs/{run}").json()
    assert (record["state"], "worker_lost" in record["reason"]) == ("paused", True)
    outside.api.post(f"/v1/runs/{run}:resume")
    drive(outside)
    claims = outside.api.get(f"/v1/runs/{run}/unlocks").json()["items"]
    assert {claim["state"] for claim in claims} == {"confirmed"}


def test_the_main_file_of_several_is_the_first(api: Api, stores: Stores) -> None:
    seed = "# === file: a.py ===\nx = 1\n# === file: candidate.py ===\ny = 2\n"
    stores.catalog.add_problem(external(many_files=True, seed_program=seed))
    stores.catalog.add_policy(scripted())
    lab = Lab(api, stores)
    lab.start(1)
    work(lab)
    (candidate,) = acquire(api)
    assert [*candidate["files"]] == ["candidate.py", "a.py"]


def lapse(stores: Stores) -> None:
    with stores.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE external_evaluations SET lease_until = now() - interval '1 second'")


def test_an_ended_run_offers_and_books_nothing_and_a_paused_one_books(outside: Lab) -> None:
    run = outside.start(5)
    work(outside)
    (seed,) = acquire(outside.api)
    outside.api.post(f"/v1/runs/{run}:pause")
    assert submit(outside.api, measured(seed))[0]["status"] == "booked"
    outside.api.post(f"/v1/runs/{run}:resume")
    work(outside)
    waiting = acquire(outside.api)
    assert len(waiting) > 1
    outside.api.post(f"/v1/runs/{run}:cancel")
    assert {one["reason"] for one in submit(outside.api, *map(measured, waiting))} == {"its run has ended"}
    assert acquire(outside.api) == []


def test_early_stages_run_in_the_sandbox_and_stop_a_candidate(api: Api, stores: Stores) -> None:
    stages = [
        {"name": "quick", "objectives": ["x"], "needs": "x >= 2"},
        {"name": "slow", "objectives": ["y"], "evaluation": "external"},
    ]
    script = "import re\ndef evaluate_quick(candidate, context):\n    return {'x': 1}\n"
    staged = external(evaluation="sandbox", stages=stages, evaluator=script, capabilities=["gpu"], seed_program="")
    stores.catalog.add_problem(staged)
    stores.catalog.add_policy(scripted())
    lab = Lab(api, stores)

    class Early(ToyEvaluator):
        """Measures x and stops programs with x < 2, as the sandbox does."""

        def evaluate(self, problem: Problem, programs: Any, **options: Any) -> Any:
            from dataclasses import replace

            found = super().evaluate(problem, programs, **options)
            return [
                replace(one, rewards=(one.rewards[0], 10.0), stopped_at=None if one.rewards[0] >= 2 else "slow")
                for one in found
                if one.rewards is not None
            ]

    run = lab.start(8)
    executor = WorkExecutor(stores.work, stores.signals, Early(), build_client)
    for _ in range(20):
        for unit in stores.runs.work_in_flight():
            if unit.state != "parked":
                executor.execute(unit.work_id)
        assert acquire(api) == []  # this machine has no GPU
        for one in acquire(api, capabilities=["gpu", "slurm"]):
            assert one["objectives"] == ["y"]
            x, y = (float(value) for value in re.findall(r"= *([0-9.]+)", one["program"]))
            assert one["measured"] == {"x": x}
            result = {"id": one["id"], "lease": one["lease"]}
            submit(api, result | ({"failure": {"kind": "timeout"}} if x == 3 else {"rewards": {"y": y}}))
    found = {c["rewards"]["x"]: c for c in api.get(f"/v1/runs/{run}/candidates").json()["items"] if c["rewards"]}
    assert found[0.0]["stopped_at"] == found[3.0]["stopped_at"] == "slow"
    assert (found[5.0]["rewards"]["y"], found[5.0]["stopped_at"], found[5.0]["tier"]) == (4.0, None, ATTESTED)
    assert api.get(f"/v1/runs/{run}").json()["state"] == "completed"


def test_a_token_for_evaluation_does_nothing_else_and_sees_its_project_only(
    outside: Lab, stores: Stores, serve: Any, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = outside.start(5)
    work(outside)
    secret = "o" * 32
    guarded = serve(settings.model_copy(update={"token": type(settings.database_url)(secret)}))
    operator = {"Authorization": f"Bearer {secret}"}
    guarded.post("/v1/projects", {"slug": "other"}, headers=operator)

    def bearer(scope: Scope, project: str = "default") -> dict[str, str]:
        made = guarded.post(
            "/v1/tokens", {"name": scope, "scope": scope}, headers=operator | {"Speciate-Project": project}
        )
        return {"Authorization": f"Bearer {made.json()['token']}"}

    mine, reader, stranger = bearer(Scope.EVALUATE), bearer(Scope.READ), bearer(Scope.EVALUATE, "other")
    refused(guarded.post("/v1/evaluations:acquire", {}, headers=reader), 403, "forbidden")
    refused(guarded.get("/v1/runs", headers=mine), 403, "forbidden")
    refused(guarded.post("/v1/runs", {}, headers=mine), 403, "forbidden")
    assert guarded.post("/v1/evaluations:acquire", {}, headers=stranger).json()["items"] == []
    monkeypatch.setenv("SPECIATE_TOKEN", mine["Authorization"].removeprefix("Bearer "))
    named = evaluate(Lab(guarded, stores), tmp_path, "--run", str(run)[-8:], "--", "true")
    assert named.returncode == 7
    assert "--run takes the whole id of a run" in " ".join(named.stderr.split())
    (seed,) = guarded.post("/v1/evaluations:acquire", {}, headers=mine).json()["items"]
    body = {"results": [measured(seed)]}
    assert guarded.post("/v1/evaluations:submit", body, headers=stranger).json()["items"][0]["status"] == "refused"
    assert guarded.post("/v1/evaluations:submit", body, headers=mine).json()["items"][0]["status"] == "booked"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "in_process", "evaluator": "x"}, "no external evaluation"),
        ({"capabilities": ["gpu"], "evaluation": "sandbox", "evaluator": "x"}, "this problem has none"),
        ({"objectives": [{"name": "x"}, {"name": "y", "range": [0, 1]}]}, "declare its range"),
        (
            {"evaluation": "sandbox", "evaluator": "x", "stages": [
                {"name": "a", "objectives": ["x"], "evaluation": "external"}, {"name": "b", "objectives": ["y"]}]},
            "only the last stage",
        ),
        ({"evaluator": "x", "stages": [{"name": "a", "objectives": ["x", "y"]}]}, "for the last one instead"),
    ],
)  # fmt: skip
def test_a_wrong_definition_says_what_is_expected(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        external(**changes)


def test_a_resumed_run_of_a_function_offers_what_an_ended_process_had_leased(outside: Lab, stores: Stores) -> None:
    stores.catalog.add_problem(external(capabilities=[f"{CALLABLE}0"]))
    run = outside.start(5)
    work(outside)
    (seed,) = acquire(outside.api, capabilities=[f"{CALLABLE}0"])
    outside.api.post(f"/v1/runs/{run}:pause")
    outside.api.post(f"/v1/runs/{run}:resume")
    (again,) = acquire(outside.api, capabilities=[f"{CALLABLE}0"])
    assert (again["id"], again["attempt"]) == (seed["id"], 1)
