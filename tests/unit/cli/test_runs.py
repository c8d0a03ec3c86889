from __future__ import annotations

import json
import logging
import os
import pty
import signal
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import typer

from speciate.cli.errors import ExitCode
from speciate.cli.output import pluralize
from speciate.cli.runs.watch import policy_warnings, status_line
from speciate.domain.budget import Budget
from speciate.domain.campaign import WAITS_FOR_GRANT
from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.diagnosis import Diagnosis, Fault
from speciate.domain.guidance import Guidance
from speciate.domain.novelty import Novelty
from speciate.domain.objective import Objective, ObjectiveRole
from speciate.domain.rollout import REFUSED
from speciate.domain.run import RunCounters, RunSpec
from speciate.schema.proposals import ProposalReceipt, ProposalRecord, ProposalState, ReceiptStatus
from speciate.schema.runs import RunRecord
from tests.unit.cli.conftest import MAIN, Cli
from tests.unit.client.fake_service import (
    END,
    RUN,
    FakeService,
    Handler,
    best,
    candidate_json,
    event,
    page,
    problem,
    problem_json,
    run_json,
    say,
    serve_best,
    stream,
)

ROOT = Path(__file__).parents[3]
BEST = best("first", radius=2.5).model_dump(mode="json")
DONE = {"state": "completed", "reached": ["first"], "unlocked": True, "best": BEST}


def _watched(service: FakeService, last: dict[str, object], *events: bytes) -> None:
    service.on("POST", "/v1/runs", say(run_json(state="created"), 202))
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()), say(run_json(**last)))
    service.on("GET", f"/v1/problems/{UUID(int=1)}", say(problem_json()))
    service.on("GET", f"/v1/runs/{RUN}/candidates/1", say(candidate_json(1)))
    service.on("GET", f"/v1/runs/{RUN}/events", stream(*events))


CONFIRMED = event(2, "target.confirmed", target="first", candidate=9, evaluations=40, unlock=True)
CONFIRMED_LATER = event(3, "target.confirmed", target="first", candidate=9, evaluations=40, unlock=True)


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (["--budget", 2_000_000], "2,000,000 evaluations"),
        (["--tokens", 2 * 10**9], "2,000,000,000 tokens"),
        (["--budget", 5, "--seconds", 3e6], "3,000,000.0 seconds"),
    ],
)
def test_a_budget_beyond_reason_needs_a_confirmation(
    cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch, limit: list[object], text: str
) -> None:
    command = ["run", "packing", "-p", "m", *limit]
    refused = cli(*command)
    assert refused.code == ExitCode.INVALID
    assert f"A budget of {text} is unusually large" in refused.err
    assert "--yes" in refused.err
    questions = []
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr(typer, "confirm", lambda question, **_: questions.append(question))
    assert cli(*command).code == ExitCode.FAILED
    assert (len(questions), service.requests) == (1, [])
    service.on("POST", "/v1/runs", say(run_json(), 202))
    assert cli(*command, "--yes").code == ExitCode.OK
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: True)
    assert cli(*command).code == ExitCode.OK


def test_run_sends_all_options(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/runs", say(run_json(), 202))
    more = ["--mutator", "n", "--strategy", "islands_map_elites", "-o", "islands=4", "-o", "selection=lexicase"]
    limits = ["--budget", 5, "--tokens", 6, "--seconds", 1.5, "--seed", 7, "--lanes", 2, "--batch", 8]
    outcome = cli(
        "run",
        "packing@1",
        "--policy",
        "m",
        *more,
        *limits,
        "--stop-on-unlock",
        "--reject-near",
        0.9,
        "--reuse-results",
        "--keep-tokens",
        "--stop-on-plateau",
        50,
        "--guidance",
        12,
    )
    assert (outcome.code, outcome.out) == (ExitCode.OK, f"{RUN}\n")
    spec = RunSpec(
        strategy="islands_map_elites",
        strategy_options={"islands": 4, "selection": "lexicase"},
        budget=Budget(evaluations=5, tokens=6, seconds=1.5),
        seed=7,
        lanes=2,
        batch=8,
        stop_on_unlock=True,
        stop_on_plateau=50,
        reuse_results=True,
        keep_tokens=True,
        novelty=Novelty(near=0.9),
        guidance=Guidance(every=12),
    )
    run = {"problem": "packing@1", "policy": "m", "mutator": "n", **spec.model_dump(mode="json")}
    assert service.requests[0].body == run


def test_a_run_that_waits_for_evaluators_names_a_command_with_their_capabilities(
    cli: Cli, service: FakeService
) -> None:
    service.on("POST", "/v1/runs", say(run_json(), 202))
    outside = problem_json()
    outside["definition"] |= {"evaluation": "external", "evaluator": "", "capabilities": ["gpu", "linux"]}
    service.on("GET", f"/v1/problems/{UUID(int=1)}", say(outside))
    started = cli("run", "packing", "-p", "m", "-b", 5)
    command = "speciate evaluate --problem packing --capability gpu --capability linux -- COMMAND"
    assert command in " ".join(started.err.split())


def test_seed_programs_are_read_from_a_folder_and_from_runs(cli: Cli, service: FakeService, tmp_path: Path) -> None:
    service.on("POST", "/v1/runs", say(run_json(), 202))
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    folder = tmp_path / "programs"
    for command in (["--seeds", folder], ["--seeds", tmp_path]):
        refused = cli("run", "packing", "-p", "m", "-b", 5, *command)
        assert refused.code == ExitCode.INVALID
        assert str(command[1]) in refused.err
        folder.mkdir(exist_ok=True)
    for name, text in (("b.py", "b = 1\n"), ("a.py", "\ufeffa = 1\n"), (".hidden", "")):
        (folder / name).write_text(text)
    wrong = cli("run", "packing", "-p", "m", "-b", 5, "--seed-from", f"{RUN}:worst")
    assert "expected RUN, RUN:front, RUN:front=N" in wrong.err
    sent = cli(
        "run", "packing", "-p", "m", "-b", 5, "--seeds", folder, "--seed-from", RUN, "--seed-from", f"{RUN}:front=3"
    )
    assert sent.code == ExitCode.OK, sent.err
    body = next(request.body for request in reversed(service.requests) if request.method == "POST")
    assert body["seeds"] == [{"program": "a = 1\n", "name": "a.py"}, {"program": "b = 1\n", "name": "b.py"}]
    assert body["seed_from"] == [{"run": str(RUN)}, {"run": str(RUN), "limit": 3}]


def test_several_policies_with_weights(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/runs", say(run_json(), 202))
    several = [
        "-p",
        "m@1=3",
        "-p",
        "k",
        "--mutator",
        "n=1",
        "--mutator",
        "o=0.5",
        "--choice",
        "ucb",
        "--discount",
        "0.98",
    ]
    assert cli("run", "packing", *several, "--budget", 5).code == ExitCode.OK
    body = service.requests[0].body
    assert (body["policy"], body["mutator"]) == ({"m@1": 3.0, "k": 1.0}, {"n": 1.0, "o": 0.5})
    assert (body["policy_choice"], body["policy_discount"]) == ("ucb", 0.98)


@pytest.mark.parametrize("named", [["-p", "m=much"], ["-p", "m", "-p", "m=2"]])
def test_invalid_policies_are_rejected(cli: Cli, service: FakeService, named: list[str]) -> None:
    outcome = cli("run", "packing", *named, "--budget", 5)
    assert outcome.code == ExitCode.INVALID
    assert "--policy" in outcome.err
    assert service.requests == []


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ([], "--budget"),
        (["--budget", "0"], "budget.evaluations"),
        (["--seconds", "nan"], "budget.seconds"),
        (["--seconds", "inf"], "budget.seconds"),
        (["--budget", "1", "--lanes", "0"], "lanes"),
        (["--budget", "1", "--stop-on-plateau", "0"], "stop_on_plateau"),
        (["--budget", "1", "--same", "meaning"], "novelty.same"),
        (["--budget", "1", "--reject-near", "1.5"], "novelty.near"),
        (["--budget", "1", "--guidance", "0"], "guidance.every"),
        (["--budget", "1", "--option", "islands"], "key=value"),
        (["--budget", "1", "--option", "rate=NaN"], "finite"),
        (["--budget", "1", "--option", "rate=1e999"], "finite"),
    ],
)
def test_invalid_run_is_rejected(cli: Cli, service: FakeService, args: list[str], named: str) -> None:
    outcome = cli("run", "p", "--policy", "m", *args)
    assert outcome.code == ExitCode.INVALID
    assert named in outcome.err
    assert service.requests == []


def test_a_name_too_long_for_a_folder_is_not_found(cli: Cli, service: FakeService) -> None:
    assert cli("run", "x" * 300, "--policy", "m", "--budget", 1).code == ExitCode.NOT_FOUND
    assert service.requests


def test_ensemble_run_shows_each_member(cli: Cli, service: FakeService) -> None:
    member = {"policy_id": str(RUN), "policy_version": 1, "weight": 1.0, "asked": 40, "judged": 36}
    members = [member | {"role": "propose", "policy": name, "won": won} for name, won in (("big", 9), ("small", 3))]
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(ensembles=members)))
    service.on("GET", f"/v1/runs/{RUN}/unlocks", page())
    serve_best(service)
    lines = cli("runs", "show", RUN).lines
    assert any("big@1 + small@1" in line for line in lines)
    assert any(line.split() == ["propose", "small@1", "1", "40", "3", "0"] for line in lines)


def test_run_shows_every_counter(cli: Cli, service: FakeService) -> None:
    counts = {name: 1000 + i for i, name in enumerate(RunCounters.model_fields)}
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(**counts)))
    service.on("GET", f"/v1/runs/{RUN}/unlocks", page())
    serve_best(service)
    shown = cli("runs", "show", RUN).out
    assert all(f"{count:,}" in shown for count in counts.values())


PIECE = {"number": 16, "parent": 8, "rollout_id": str(RUN), "judged": 40, "won": 3, "lives": False}
HOSTILE = "Be\x1b[2J\u202e bold.\n" + "word " * 100


def test_guidance_is_shortened_in_the_table_and_complete_as_json(cli: Cli, service: FakeService) -> None:
    none = {"number": 0, "judged": 9, "won": 1, "lives": True}
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", f"/v1/runs/{RUN}/guidance", page(PIECE | {"text": HOSTILE}, none))
    shown = cli("runs", "guidance", RUN)
    assert shown.lines[1].split()[:7] == ["16", "8", "40", "3", "dropped", "Be\ufffd[2J\ufffd", "bold."]
    assert shown.lines[1].endswith("word [...]")
    assert shown.lines[2].split() == ["0", "9", "1", "no", "advice"]
    assert len(shown.lines) == 3
    whole = cli("runs", "guidance", RUN, "--json")
    assert [json.loads(line)["text"] for line in whole.lines] == [HOSTILE, ""]
    assert "\x1b" not in whole.out


def test_guidance_of_a_run_without_advice(cli: Cli, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", f"/v1/runs/{RUN}/guidance", page())
    assert "has no advice" in cli("runs", "guidance", RUN).err


def test_piped_watch_prints_the_address_once_and_then_changes(
    cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("speciate.cli.runs.watch"), "PLAIN_REFRESH_S", 0)
    better = say(run_json(best=best(radius=1.75).model_dump(mode="json")))
    service.on(
        "GET",
        f"/v1/runs/{RUN}",
        *[say(run_json())] * 3,
        better,
        better,
        better,
        say(run_json(**DONE, reason="the budget is spent")),
    )
    # A record is no objective of the search: it has no line.
    objectives = (Objective(name="radius", range=(0.0, 10.0)), Objective(name="loss", role=ObjectiveRole.RECORD))
    service.on("GET", f"/v1/problems/{UUID(int=1)}", say(problem_json(objectives=objectives)))
    serve_best(service)
    service.on("GET", f"/v1/runs/{RUN}/candidates/1", say(candidate_json(1)))
    service.on("GET", f"/v1/runs/{RUN}/events", stream(event(1), CONFIRMED, *map(event, range(3, 6)), END))
    outcome = cli("runs", "watch", RUN)
    assert outcome.code == ExitCode.OK
    assert outcome.lines == [
        f"run {RUN}  {service.url}/runs/{RUN}",
        "running: 40 of 100 evaluations  1.5 s  1,600 a minute  about 0:00:02 left  4 failed, 2 duplicates",
        "best candidate 9: radius 1.5 (seed 1, 0.5 better)  after 40 evaluations",
        "candidate 9 meets first, which unlocks the problem: confirmed after 40 evaluations",
        "best candidate 9: radius 1.75 (seed 1, 0.75 better)  after 40 evaluations",
        "40 of 100 evaluations  1.5 s  4 failed, 2 duplicates",
        "completed: the budget is spent",
        f"4 failed, 4 of them by exited: speciate candidates list {RUN} --status failed",
        "best        candidate 9",
        "rewards     radius 2.5 (seed 1, 1.5 better)",
        "meets       first",
        f"trade-offs  2: speciate best {RUN} --front",
        "written to  best/packing-00000007/candidate.py",
        f"page        {service.url}/runs/{RUN}",
    ]
    assert outcome.err == f"Print it with: speciate best {RUN}\n"


def test_suggested_commands_are_not_wrapped(service: FakeService) -> None:
    _watched(service, DONE, event(1), END)
    serve_best(service)
    assert f"speciate best {RUN}\r\n" in _on_terminal(service, "runs", "watch", str(RUN), columns=60)


def test_suggested_commands_have_the_global_options(cli: Cli, service: FakeService) -> None:
    _watched(service, DONE, event(1), END)
    serve_best(service)
    outcome = cli("--project", "lab", "--url", service.url, "runs", "watch", RUN)
    assert outcome.err == f"Print it with: speciate --url={service.url} --project=lab best {RUN}\n"


def test_pluralize(cli: Cli, service: FakeService) -> None:
    first = event(2, "target.confirmed", target="first", candidate=1, evaluations=1, unlock=True)
    _watched(service, DONE, event(1), first, END)
    assert (
        "candidate 1 meets first, which unlocks the problem: confirmed after 1 evaluation"
        in cli("run", "packing", "-p", "m", "-b", 9, "--watch").lines
    )
    assert [pluralize(0, "run"), pluralize(1, "entry", "entries"), pluralize(1200, "entry", "entries")] == [
        "0 runs",
        "1 entry",
        "1,200 entries",
    ]


@pytest.mark.parametrize(
    ("last", "text", "code"),
    [
        (DONE, "completed", ExitCode.OK),
        ({"state": "completed", "reached": ["other"]}, "others meet  other", ExitCode.NOT_UNLOCKED),
        (
            {"state": "completed", "best": None, "no_result": "no candidate has rewards: the seed program fails: x"},
            "no result: no candidate has rewards: the seed program fails: x",
            ExitCode.FAILED,
        ),
        ({"state": "paused", "reason": "the endpoint is down"}, "speciate runs resume", ExitCode.PAUSED),
        ({"state": "failed", "reason": "broken"}, "failed: broken", ExitCode.FAILED),
        ({"state": "cancelled"}, "cancelled", ExitCode.FAILED),
    ],
)
def test_exit_code_of_watch_tells_the_outcome(
    cli: Cli, service: FakeService, last: dict[str, object], text: str, code: ExitCode
) -> None:
    first = event(1, "run.paused", reason="x") if last["state"] == "paused" else event(1)
    _watched(service, last, first, END)
    serve_best(service)
    outcome = cli("runs", "watch", RUN)
    assert outcome.code == code
    assert text in outcome.out


REFUSAL = Diagnosis.of(Fault.POLICY, Failure(FailureKind.REJECTED, REFUSED, "model m is gone."), 7, 6)
FAILURE = "no candidate has rewards: the seed program fails: x"
LISTED = f"See `speciate candidates list {RUN}`."
RESUME = f"Resume it with: speciate runs resume {RUN}"


@pytest.mark.parametrize(
    ("last", "lines"),
    [
        (
            {"state": "completed", "reason": "the budget is spent", "no_result": FAILURE},
            [f"no result: {FAILURE}", LISTED],
        ),
        (
            {"state": "paused", "reason": "the endpoint is down"},
            [
                "paused: the endpoint is down",
                RESUME,
                f"run {RUN} has no feasible candidate: none of its 40 candidates has rewards. {LISTED}",
            ],
        ),
        (
            {"state": "paused", "reason": "x", "spent": run_json()["spent"] | {"evaluations": 10_000}},
            [
                "paused: x",
                "Its budget is spent: start a new run.",
                f"run {RUN} has no feasible candidate: none of its 40 candidates has rewards. {LISTED}",
            ],
        ),
        (
            {"state": "paused", "reason": REFUSAL.summary, "diagnosis": REFUSAL.model_dump(mode="json")},
            [
                "paused: no prompt was accepted (6 in a row)",
                "",
                "--- candidate 7: refused",
                "model m is gone.",
                "",
                REFUSAL.remedy,
                f"Show it with: speciate candidates rollout {RUN}/7",
                RESUME,
            ],
        ),
    ],
)
def test_a_watch_ends_with_one_reason_and_one_remedy(
    cli: Cli, service: FakeService, last: dict[str, object], lines: list[str]
) -> None:
    service.on("GET", f"/v1/runs/{RUN}/archive", page())
    _watched(service, {"best": None, **last}, event(1, f"run.{last['state']}", reason=last["reason"]), END)
    outcome = cli("runs", "watch", RUN)
    assert outcome.out.rpartition(" duplicates\n")[2].splitlines() + outcome.err.splitlines() == lines


DIAGNOSIS = {
    "fault": "evaluator",
    "reason": "evaluator_raised",
    "detail": "Traceback\n\x1b[2JModuleNotFoundError: No module named 'shapely'",
    "candidate": 1,
    "failures": 1,
    "remedy": "Install it and resume the run.",
}


def test_a_diagnosis_is_shown_by_every_command(cli: Cli, service: FakeService) -> None:
    paused = {"state": "paused", "reason": "the seed program could not be scored " + "x" * 200, "diagnosis": DIAGNOSIS}
    _watched(service, paused, event(1, "run.paused", reason="x"), END)
    service.on("GET", f"/v1/runs/{RUN}/unlocks", page())
    serve_best(service)
    service.on("GET", "/v1/runs", page(run_json(**paused), run_json(reason="completed early", state="completed")))
    for command in ("watch", "show"):
        outcome = cli("runs", command, RUN)
        assert "\ufffd[2JModuleNotFoundError: No module named 'shapely'" in outcome.lines
        assert "Install it and resume the run." in outcome.lines
        assert f"Show it with: speciate candidates show {RUN}/1" in outcome.lines
    listed = cli("runs", "list").lines
    assert listed[0].endswith("reason")
    assert listed[1].endswith("the seed program could not be scored …")
    assert "completed early" not in listed[2]


def test_alarms_and_hostile_reasons_are_printed_on_one_line(cli: Cli, service: FakeService) -> None:
    _watched(service, DONE, event(1, "alarm.raised", message="60% failed\n\x1b[2J[red]"), END)
    assert "alarm: 60% failed \ufffd[2J[red]" in cli("runs", "watch", RUN).lines


def test_repeated_alarm_is_printed_once_until_it_clears(cli: Cli, service: FakeService) -> None:
    raised = [event(n, "alarm.raised", message=f"{n}5% failed") for n in (1, 2, 4)]
    _watched(service, DONE, raised[0], raised[1], event(3, "alarm.cleared"), raised[2], END)
    alarms = [line for line in cli("runs", "watch", RUN).lines if "alarm" in line]
    assert alarms == ["alarm: 15% failed", "alarm cleared", "alarm: 45% failed"]


def test_watch_as_json_prints_events(cli: Cli, service: FakeService) -> None:
    _watched(service, DONE, event(1), CONFIRMED, END)
    outcome = cli("runs", "watch", RUN, "--json")
    assert [json.loads(line)["seq"] for line in outcome.lines] == [1, 2]


def _piped(service: FakeService, *args: str, **variables: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", MAIN, *args]
    environment = {"SPECIATE_URL": service.url, "PYTHONPATH": str(ROOT), **variables}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_events_are_flushed_to_a_pipe_at_once(service: FakeService) -> None:
    received, in_time = threading.Event(), []

    def hold(handler: Handler) -> None:
        stream(event(1), broken=True)(handler)
        in_time.append(received.wait(20))
        handler.chunk(END)
        handler.chunk(b"")

    service.on("GET", f"/v1/runs/{RUN}", say(run_json()), say(run_json(**DONE)))
    service.on("GET", f"/v1/runs/{RUN}/events", hold)
    with _piped(service, "runs", "watch", str(RUN), "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["seq"] == 1
        received.set()
    assert (in_time, process.returncode) == ([True], ExitCode.OK)


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_ctrl_c_says_that_the_run_goes_on(service: FakeService, options: list[str]) -> None:
    watched, over = threading.Event(), threading.Event()

    def hold(handler: Handler) -> None:
        stream(event(1), broken=True)(handler)
        watched.set()
        over.wait(30)

    service.on("GET", f"/v1/runs/{RUN}", say(run_json(evaluated=0)))
    service.on("GET", f"/v1/problems/{UUID(int=1)}", say(problem_json()))
    service.on("GET", f"/v1/runs/{RUN}/events", hold)
    with _piped(service, "runs", "watch", str(RUN), *options) as process:
        assert watched.wait(30)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        over.set()
    assert process.returncode == ExitCode.INTERRUPTED
    assert err.decode().splitlines() == [
        "The run goes on in the service.",
        f"Watch it again with: speciate runs watch {RUN}",
        f"Stop it with: speciate runs cancel {RUN}",
    ]


def test_an_outage_that_several_requests_wait_for_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("speciate.policies.openai_compatible")
    with policy_warnings():
        for _ in range(3):
            logger.warning("%s Attempts go on for %g s.", "it answered 429: slow\x1b[31m down.", 300.0)
    logger.warning("later")
    assert capsys.readouterr().err.count("Attempts go on for 300 s.") == 1


def test_characters_missing_in_the_locale_are_replaced(service: FakeService) -> None:
    made = candidate_json(17, program="print('\u4e2d')")
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", f"/v1/runs/{RUN}/candidates/17", say(made))
    service.on("GET", f"/v1/runs/{RUN}/export", stream(json.dumps(made).encode() + b"\n", kind="application/x-ndjson"))
    with _piped(service, "candidates", "show", f"{RUN}/17", PYTHONIOENCODING="latin-1") as shown:
        assert b"print('?')" in shown.communicate()[0]
    with _piped(service, "runs", "export", str(RUN), PYTHONIOENCODING="latin-1") as exported:
        assert json.loads(exported.communicate()[0])["program"] == made["program"]
    assert (shown.returncode, exported.returncode) == (ExitCode.OK, ExitCode.OK)


def test_watch_of_a_paused_run_as_json_includes_results_after_the_pause(cli: Cli, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(state="paused", last_event=4)))
    events = [event(1), event(2, "run.paused"), event(3), event(4)]
    # A service that has nothing more to tell would keep the stream open.
    service.on("GET", f"/v1/runs/{RUN}/events", stream(*events, event(5), END))
    outcome = cli("runs", "watch", RUN, "--json")
    assert [json.loads(line)["seq"] for line in outcome.lines] == [1, 2, 3, 4]
    assert outcome.code == ExitCode.PAUSED


def test_watch_as_json_continues_after_a_past_pause(cli: Cli, service: FakeService) -> None:
    paused = say(run_json(state="paused", last_event=6))
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(last_event=3)), paused)
    events = [event(1, "run.paused"), event(2, "run.resumed"), event(3), event(4), event(5, "run.paused"), event(6)]
    service.on("GET", f"/v1/runs/{RUN}/events", stream(*events, END))
    outcome = cli("runs", "watch", RUN, "--json")
    assert [json.loads(line)["seq"] for line in outcome.lines] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("options", [[], ["--json"]])
@pytest.mark.parametrize("first", [{}, {"state": "paused", "reason": WAITS_FOR_GRANT}])
def test_watch_continues_if_the_run_has_resumed_or_its_campaign_will_go_on(
    cli: Cli, service: FakeService, first: dict[str, Any], options: list[str]
) -> None:
    before = [say(run_json(**first))] * (2 if options else 3)
    service.on("GET", f"/v1/runs/{RUN}", *before, say(run_json(**DONE)))
    service.on("GET", f"/v1/problems/{UUID(int=1)}", say(problem_json()))
    service.on("GET", f"/v1/runs/{RUN}/candidates/1", say(candidate_json(1)))
    events = [event(1, "run.paused", reason="waits"), event(2, "run.resumed"), CONFIRMED_LATER, END]
    service.on("GET", f"/v1/runs/{RUN}/events", stream(*events))
    outcome = cli("runs", "watch", RUN, *options)
    assert outcome.code == ExitCode.OK
    assert "target.confirmed" in outcome.out if options else "candidate 9 meets first" in outcome.out


def _on_terminal(service: FakeService, *args: str, columns: int = 100) -> str:
    command = [sys.executable, "-c", "from speciate.cli import main; main()", *args]
    environment = {"SPECIATE_URL": service.url, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": str(columns)}
    ours, theirs = pty.openpty()
    with subprocess.Popen(command, env=environment, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # Linux says EIO when the other end is closed.
            pass
        os.close(ours)
    assert process.returncode == 0
    return shown.decode()


def test_watch_draws_live_progress_on_a_terminal(service: FakeService) -> None:
    serve_best(service)
    running = say(run_json(best=BEST, reached=["first"], alarm="60% failed"))
    service.on("GET", f"/v1/runs/{RUN}", running, running, say(run_json(**DONE)))
    service.on("GET", f"/v1/runs/{RUN}/candidates/1", say(candidate_json(1)))
    service.on("GET", f"/v1/runs/{RUN}/events", stream(event(1), CONFIRMED, END))
    text = _on_terminal(service, "runs", "watch", str(RUN), "--no-out")
    assert "\x1b[" in text
    for expected in ("best candidate 9", "radius", "better", "candidate 9 meets first"):
        assert expected in text
    last = text.rpartition("40 of 100 evaluations")[2]
    assert [last.count(word) for word in ("completed", "first", "radius")] == [1, 1, 1]


@pytest.mark.parametrize("verb", ["pause", "resume", "cancel"])
def test_pause_resume_cancel(cli: Cli, service: FakeService, verb: str) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on(
        "POST", f"/v1/runs/{RUN}:{verb}", say(run_json(state="paused", reason="why")), problem(409, "conflict", "no.")
    )
    args = [] if verb == "resume" else ["--reason", "why"]
    assert cli("runs", verb, RUN, *args).out == f"{RUN} is paused: why\n"
    assert service.requests[-1].body == (None if verb == "resume" else {"reason": "why"})
    assert cli("runs", verb, RUN).code == ExitCode.CONFLICT


def test_list_sends_its_order(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/runs", page(run_json()))
    cli("runs", "list", "--sort", "tokens", "--reverse")
    cli("runs", "list")
    assert [service.requests[i].query.get("sort") for i in (0, 1)] == [["tokens"], ["started"]]
    assert [service.requests[i].query.get("reverse") for i in (0, 1)] == [["true"], None]


def test_list_notes_omitted_items(cli: Cli, service: FakeService) -> None:
    compared = [{"objective": "radius", "value": 2.5, "seed": 1.0, "verdict": "better"}]
    service.on("GET", "/v1/runs", page(run_json(), run_json(**DONE, best_rewards=compared), run_json(), cursor="more"))
    outcome = cli("runs", "list", "-n", 2, "--state", "running")
    heads = "run state problem policy strategy spent tokens cost seconds best reached"
    assert outcome.lines[0].split() == heads.split()
    assert outcome.lines[1].split()[:3] == [str(RUN), "running", "packing@1"]
    assert outcome.lines[2].endswith("2  radius 2.5 (seed 1, 1.5 better)  unlocked")
    assert service.requests[0].query["group"] == ["own"]
    assert len(service.requests) == 1
    assert outcome.err == "… and more: --limit 20\n"
    assert [json.loads(line)["state"] for line in cli("runs", "list", "-n", 2, "--json").lines] == [
        "running",
        "completed",
    ]


def test_complete_list_has_no_note(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/runs", page(run_json(), run_json()))
    assert [cli("runs", "list", "-n", n, *more).err for n in (2, 3) for more in ([], ["--json"])] == [""] * 4
    assert cli("runs", "list", "-n", 1, "--json").err == "… and more: --limit 10\n"


def test_empty_list_suggests_a_command(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/runs", page())
    outcome = cli("runs", "list")
    left_out = "Those of tournaments and campaigns are left out: add --group all.\n"
    assert (outcome.out, outcome.err) == ("", f"There are no runs yet: speciate run --help\n{left_out}")
    assert cli("runs", "list", "--group", "all").err == "No runs match group all.\n"


def test_empty_filtered_list_names_the_filter(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/runs", page())
    shown = cli("runs", "list", "--problem", "p", "--state", "failed").err
    assert shown.startswith("No runs match problem p, state failed.\n")
    service.on("GET", "/v1/unlocks", page())
    assert cli("unlocks", "--policy", "m").err == "No unlocks match policy m.\n"


def test_run_is_found_by_prefix_or_suffix_of_its_id(cli: Cli, service: FakeService) -> None:
    other = UUID(int=1 << 100)
    service.on("GET", "/v1/runs", page(run_json(), run_json(id=str(other))))
    assert str(other) in cli("runs", "show", str(other)[:8].upper(), "--json").out
    assert str(RUN) in cli("runs", "show", str(RUN)[-8:], "--json").out
    for name in ("123456", "nope", "00000"):
        outcome = cli("runs", "show", name)
        assert (outcome.code, outcome.err) == (
            ExitCode.NOT_FOUND,
            f"error: there is no run {name!r}. See `speciate runs list`.\n",
        )


def test_a_run_is_found_by_name_by_directory_and_as_the_latest_of_its_problem(cli: Cli, service: FakeService) -> None:
    older, newer = UUID(int=1 << 100), UUID(int=2 << 100)
    runs = [run_json(id=str(newer), problem="toy"), run_json(), run_json(id=str(older), name="try", problem="toy")]
    service.on("GET", "/v1/runs", page(*runs))
    directory = f"packing-{str(RUN)[-8:]}"
    for name, run in (("toy", newer), ("toy@1", newer), ("TRY", older), (directory, RUN), (f"best/{directory}/", RUN)):
        outcome = cli("runs", "show", name, "--json")
        assert (outcome.code, str(run) in outcome.out) == (ExitCode.OK, True), (name, outcome.err)


def test_an_ambiguous_name_lists_every_run(cli: Cli, service: FakeService) -> None:
    other = UUID(int=1 << 100)
    service.on("GET", "/v1/runs", page(run_json(name="Try"), run_json(id=str(other), name="try")))
    for name in ("try", "000000"):
        outcome = cli("runs", "show", name)
        assert outcome.code == ExitCode.INVALID
        assert all(str(run) in outcome.err for run in (RUN, other)), outcome.err
        assert "2026-01-02 03:04 UTC  running" in outcome.err


def test_an_unknown_run_suggests_the_nearest_id_or_name(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/runs", page(run_json(name="Four islands")))
    mistyped = f"{str(RUN)[:-1]}8"
    for name in ("four ilands", mistyped, mistyped[:-4] + "ffff"):
        service.on("GET", f"/v1/runs/{name}", problem(404, "not-found", f"there is no run {name!r}."))
        outcome = cli("runs", "show", name)
        assert outcome.code == ExitCode.NOT_FOUND
        assert outcome.err == f"error: there is no run {name!r}. Did you mean {RUN} (Four islands)?\n"


def test_narrow_terminal_does_not_wrap_ids(service: FakeService) -> None:
    service.on("GET", "/v1/runs", page(run_json(problem="a-very-long-name-of-a-problem" * 2)))
    assert str(RUN) in _on_terminal(service, "runs", "list", columns=60)


def test_export_to_a_file_is_atomic(cli: Cli, service: FakeService, tmp_path: Path) -> None:
    line = json.dumps(candidate_json()).encode() + b"\n"
    service.on("GET", f"/v1/runs/{RUN}", say(run_json()))
    service.on("GET", f"/v1/runs/{RUN}/export", stream(line, broken=True), stream(line, line), stream(line))
    assert cli("runs", "export", RUN, "--out", tmp_path / "x").code == ExitCode.UNREACHABLE
    assert list(tmp_path.iterdir()) == []
    assert cli("runs", "export", RUN, "--out", tmp_path / "x").code == ExitCode.OK
    assert len((tmp_path / "x").read_text().splitlines()) == 2
    assert json.loads(cli("runs", "export", RUN).out)["number"] == 1
    asked = len(service.asked(f"/v1/runs/{RUN}/export"))
    assert cli("runs", "export", RUN, "--out", tmp_path).code == ExitCode.CONFLICT
    assert len(service.asked(f"/v1/runs/{RUN}/export")) == asked
    assert cli("runs", "export", RUN, "--out", tmp_path / "no" / "x").code == ExitCode.CONFLICT


ESTIMATE: dict[str, Any] = {
    **{
        name: {"low": 5, "expected": 9, "high": 1234.5}
        for name in ("evaluations", "calls", "completions", "prompt_tokens", "completion_tokens", "tokens")
    },
    "dollars": {"low": 0.001, "expected": 0.25, "high": 2},
    "first_prompt_bytes": 900,
    "sources": [{"policy": "qwen@1", "same": ["policy", "problem"], "runs": [str(RUN)]}],
}


def test_an_estimate_starts_nothing_unless_it_is_confirmed(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/runs:estimate", say(ESTIMATE))
    command = ["run", "packing", "-p", "qwen", "-b", 9, "--estimate"]
    outcome = cli(*command)
    assert outcome.code == ExitCode.OK
    assert [line.split() for line in outcome.lines][::7] == [
        ["expected", "from", "to"],
        ["dollars", "0.2500", "0.0010", "2.0000"],
    ]
    assert "qwen@1: earlier runs of the same policy and problem (…00000007)." in outcome.err
    assert "Nothing was started. --yes starts the run." in outcome.err
    assert not service.asked("/v1/runs")
    service.on("GET", f"/v1/problems/{UUID(int=1)}", say(problem_json()))
    spent = run_json()["spent"] | {"cost": 0.3}
    service.on("POST", "/v1/runs", say(run_json(estimate=ESTIMATE), 202))
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(state="failed", spent=spent, best=None, estimate=ESTIMATE)))
    service.on("GET", f"/v1/runs/{RUN}/events", stream(event(1), END))
    outcome = cli(*command, "--yes", "--watch")
    (request,) = service.asked("/v1/runs")
    assert request.body["estimate"] is True
    assert [line.split() for line in outcome.lines if line.startswith("dollars")] == [
        ["dollars", "0.2500", "0.0010", "2.0000"],
        ["dollars", "0.2500", "0.0010", "2.0000", "0.3000"],
    ]


def test_a_run_that_waits_for_its_training_says_so() -> None:
    waiting = RunRecord.model_validate_json(json.dumps(run_json(learning={"busy": True, "campaign": None})))
    assert "waits for a learn worker (`speciate up --learn`)" in status_line(waiting)
    assert "left" not in status_line(waiting)


def test_a_proposal_is_printed_with_its_summary_who_confirmed_its_targets_and_its_feedback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    receipt = ProposalReceipt(index=0, status=ReceiptStatus.ACCEPTED, number=5)
    record = ProposalRecord(
        number=5,
        state=ProposalState.EVALUATED,
        summary="x = 0.380949549. Misses: t (missing: x <= 0.38).",
        targets=("low", "first", "late"),
        confirmed=("first",),
        confirmed_by={"low": 2},
        feedback={"note": "half"},
        best=True,
        next="Improve it.",
    )
    import_module("speciate.cli.runs.propose")._print("a.txt", receipt, record)
    printed = capsys.readouterr()
    marks = "meets low (confirmed by 2)  meets first  meets late (unconfirmed)  best of the run"
    assert f"candidate 5  x = 0.380949549. Misses: t (missing: x <= 0.38).  {marks}\n" in printed.out
    assert "half" in printed.out + printed.err


def test_an_interrupted_proposal_names_what_stays_queued(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def wait(number: int, **_: object) -> None:
        raise KeyboardInterrupt

    receipts = [ProposalReceipt(index=0, status=ReceiptStatus.ACCEPTED, number=5)]
    run = SimpleNamespace(propose_all=lambda *_, **__: receipts, proposal=wait)
    service = SimpleNamespace(runs=SimpleNamespace(get=lambda _: run))
    monkeypatch.setattr("speciate.cli.runs.propose.client", lambda: service)
    program = tmp_path / "a.py"
    program.write_text("x = 1")
    stopped = cli("runs", "propose", "fs2", program)
    assert stopped.code == 130
    assert "keeps candidate 5" in stopped.err
    assert "speciate runs proposals fs2" in stopped.err
