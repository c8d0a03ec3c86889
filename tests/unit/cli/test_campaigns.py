"""Tests of ``speciate campaigns``."""

from __future__ import annotations

import json

import pytest

from speciate.cli import common, lifecycle
from speciate.cli.errors import ExitCode
from tests.unit.cli.conftest import Cli
from tests.unit.client.campaign_records import campaign, slice_record
from tests.unit.client.fake_service import FakeService, page, problem, say

PATH = "/v1/campaigns/sweep"


def test_options_form_a_declaration(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/campaigns", say(campaign(), 202))
    args = [
        "--set",
        "mazes",
        "--problem",
        "p@2",
        "-p",
        "big",
        "-p",
        "small=3",
        "--choice",
        "ucb",
        "-b",
        200,
        "--seed",
        4,
    ]
    more = ["--mode", "fixed", "--slice", 8, "--parallel", 2, "-s", "best_of_n", "-o", "a=1", "--batch", 4]
    outcome = cli("campaigns", "create", "sweep", *args, *more, "--mutator", "m", "--idempotency-key", "k")
    assert (outcome.code, outcome.lines) == (ExitCode.OK, ["sweep: 200 evaluations for 3 problems"])
    (request,) = service.requests
    assert request.headers["Idempotency-Key"] == "k"
    assert request.body == {
        "slug": "sweep",
        "problems": ["p@2", "set:mazes"],
        "policy": {"big": 1.0, "small": 3.0},
        "mutator": "m",
        "policy_choice": "ucb",
        "evaluations": 200,
        "mode": "fixed",
        "slice": 8,
        "parallel": 2,
        "strategy": "best_of_n",
        "strategy_options": {"a": 1},
        "seed": 4,
        "batch": 4,
    }


def test_omitted_options_are_left_to_the_service(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/campaigns", say(campaign(), 202))
    assert cli("campaigns", "create", "sweep", "--problem", "a", "-p", "p", "-b", 200, "--json").code == ExitCode.OK
    assert service.requests[0].body == {"slug": "sweep", "problems": ["a"], "policy": "p", "evaluations": 200}


def test_a_budget_beyond_reason_needs_a_confirmation(cli: Cli, service: FakeService) -> None:
    command = ["campaigns", "create", "sweep", "--problem", "a", "-p", "p", "-b", 1_000_001]
    assert "1,000,001 evaluations" in cli(*command).err
    assert service.requests == []
    service.on("POST", "/v1/campaigns", say(campaign(), 202))
    assert cli(*command, "--yes", "--json").code == ExitCode.OK


def test_missing_problems_are_rejected_before_a_request(cli: Cli, service: FakeService) -> None:
    outcome = cli("campaigns", "create", "sweep", "-p", "p", "-b", 200)
    assert outcome.code == ExitCode.INVALID
    assert "--problem NAME or --set NAME" in outcome.err
    assert service.requests == []


def test_list_show_and_verbs(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/campaigns", page(campaign(problems=[])))
    service.on("GET", PATH, say(campaign(state="paused", reason="\x1b[2Jlunch")))
    service.on("GET", f"{PATH}/slices", page(slice_record(ord=2, spent=None, reached=[]), slice_record()))
    for action in ("pause", "resume", "cancel"):
        service.on("POST", f"{PATH}:{action}", say(campaign()))
    listed = cli("campaigns", "list").lines[1].split()
    assert listed == ["sweep", "running", "adaptive", "1", "of", "3", "64", "of", "200"]
    shown = cli("campaigns", "show", "sweep")
    assert "paused: \ufffd[2Jlunch" in shown.out
    assert "p@1=1, q@2=3" in shown.out
    rows = [line.split() for line in shown.lines]
    assert ["a@1", "waiting", "32", "1", "8", "10", "%", "half", "00000000-0000-0000-0000-000000000007"] in rows
    assert ["c@1", "not", "started", "0", "1", "0", "10", "%"] in rows
    assert ["1", "a@1", "32", "0", "50", "%", "32", "half"] in rows
    assert any(row[:2] == ["b@1", "unlocked"] and row[5] == "–" for row in rows)
    fixed = campaign()["declaration"] | {"mode": "fixed"}  # equal shares follow no chance
    service.on("GET", f"{PATH}-fixed", say(campaign(declaration=fixed)))
    service.on("GET", f"{PATH}-fixed/slices", page(slice_record()))
    assert "%" not in cli("campaigns", "show", "sweep-fixed").out
    assert "… and 2 more: --rows 3" in cli("campaigns", "show", "sweep", "--rows", 1).lines
    assert "… and 1 more: --rows 2" in cli("campaigns", "show", "sweep", "--rows", 1).lines
    assert not any("more:" in line for line in shown.lines)
    for action in ("pause", "resume", "cancel"):
        lines = cli("campaigns", action, "sweep").lines
        assert lines == ["sweep is running (64 of 200 evaluations, 1 of 3 problems unlocked)"]


def test_unknown_campaign(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/campaigns/none", problem(404, "not-found", "there is no campaign 'none'."))
    outcome = cli("campaigns", "show", "none")
    assert (outcome.code, outcome.err) == (
        ExitCode.NOT_FOUND,
        "error: there is no campaign 'none'. See `speciate campaigns list`.\n",
    )


@pytest.mark.parametrize(
    ("state", "code"), [("completed", ExitCode.OK), ("paused", ExitCode.PAUSED), ("cancelled", ExitCode.FAILED)]
)
def test_watch_ends_with_the_campaign(
    cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch, state: str, code: ExitCode
) -> None:
    monkeypatch.setattr(lifecycle, "POLL_S", 0.0)
    answers = (say(campaign()), say(campaign()), say(campaign(state=state, spent=200, reason="so")))
    service.on("GET", PATH, *answers)
    outcome = cli("campaigns", "watch", "sweep")
    assert outcome.code == code
    assert outcome.lines == [
        f"{campaign()['id']}  {service.url}/campaigns/sweep",
        "sweep: 64 of 200 evaluations, 1 of 3 problems unlocked",
        f"sweep is {state}: so (200 of 200 evaluations, 1 of 3 problems unlocked)",
        "Results: speciate campaigns show sweep",
    ]


def test_watch_as_json_prints_every_change(cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "POLL_S", 0.0)
    service.on("GET", PATH, say(campaign()), say(campaign()), say(campaign(state="completed")))
    lines = [json.loads(line) for line in cli("campaigns", "watch", "sweep", "--json").lines]
    assert [line["state"] for line in lines] == ["running", "completed"]


def test_watch_survives_a_restart_of_the_service(
    cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "POLL_S", 0.0)
    monkeypatch.setattr(common, "_FIRST_DELAY_S", 0.001)
    away = problem(503, "unavailable", "this process is stopping.")
    service.on("GET", PATH, say(campaign()), away, away, say(campaign(state="completed")))
    assert cli("campaigns", "watch", "sweep").code == ExitCode.OK


def test_learning_over_the_campaign(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/campaigns", say(campaign(), 202))
    args = ["campaigns", "create", "sweep", "--problem", "a", "-p", "p", "-b", 200, "--json"]
    assert cli(*args, "--learn", "entropic", "--learn-option", "groups=4", "--learn-scope", "run").code == ExitCode.OK
    sent = service.requests[0].body
    assert (sent["learning"], sent["learning_scope"]) == ({"estimator": "entropic", "groups": 4}, "run")
    assert sent["samples_per_prompt"] == 8
    outcome = cli(*args, "--learn-scope", "run")
    assert (outcome.code, "--learn-scope needs --learn" in outcome.err) == (ExitCode.INVALID, True)
    learned = {"version": "p-0123@3", "step": 3, "taken": 3, "campaign": "sweep", "seen": 30, "used": 24, "seconds": 1}
    service.on("GET", PATH, say(campaign(learning=learned)))
    service.on("GET", f"{PATH}/slices", page())
    lines = [line.split() for line in cli("campaigns", "show", "sweep").lines]
    assert ["learning", "3", "steps;", "collects", "groups"] in lines
    assert ["learned", "p-0123@3"] in lines
