"""Tests of ``speciate tournaments``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from speciate.cli import common, lifecycle
from speciate.cli.errors import ExitCode
from speciate.domain.declaration import DeclarationState
from speciate.domain.tournament import Tournament
from speciate.schema.declarations import TournamentRecord
from speciate.tournaments.rendering.conclusion import conclusion
from speciate.tournaments.rendering.tables import sections
from tests.unit.cli.conftest import Cli
from tests.unit.client.fake_service import AT, FakeService, page, problem, say
from tests.unit.tournaments.bundles import PUBLIC, bundle_of
from tests.unit.tournaments.synthetic import methods_of, report_of, results_of, schedule_of

PATH = "/v1/tournaments/synthetic"


def _record(declared: Tournament | None = None, **values: Any) -> dict[str, Any]:
    declared = declared or schedule_of(3, 2, 2).declared
    record = TournamentRecord(
        id=UUID(int=9),
        slug=declared.slug,
        declaration=declared,
        digest=declared.digest,
        state=DeclarationState.RUNNING,
        reason=None,
        created_at=AT,
        finished_at=None,
        amendments=(),
        planned=12,
        started=5,
        ended=3,
    )
    return {**record.model_dump(mode="json"), **values}


def _serve_set(service: FakeService, name: str, problems: int) -> None:
    member = {"id": str(UUID(int=3)), "slug": "p", "version": 1, "title": "", "kind": "cases", "digest": "d"}
    member |= {"objectives": ["x"], "targets": ["t"], "created_at": AT.isoformat()}
    found = {"id": str(UUID(int=4)), "slug": name, "title": "", "created_at": AT.isoformat()}
    service.on("GET", f"/v1/problem-sets/{name}", say(found | {"problems": [member] * problems}))


def test_a_date_without_quotes_is_refused(cli: Cli, service: FakeService, tmp_path: Path) -> None:
    file = tmp_path / "tournament.toml"
    file.write_text("title = 2026-07-30\n")
    outcome = cli("tournaments", "create", "--file", file, "--yes")
    assert outcome.code == ExitCode.INVALID, outcome.err
    assert service.asked("/v1/tournaments") == []


def test_options_form_the_standard_head_to_head(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/tournaments", say(_record(ended=0), 202))
    _serve_set(service, "mazes", 5)
    args = ["--set", "mazes", "--problem", "p@2", "-p", "base", "-p", "new", "-b", 90, "--tokens", 500, "--seeds", 2]
    refused = cli("tournaments", "create", "mine", *args)
    assert refused.code == ExitCode.INVALID
    assert "6 problems cannot decide any comparison: expected at least 7. Start anyway?" in refused.err
    assert service.asked("/v1/tournaments") == []
    outcome = cli("tournaments", "create", "mine", *args, "--yes")
    assert (outcome.code, outcome.lines) == (ExitCode.OK, ["synthetic: 12 runs"])
    (request,) = service.asked("/v1/tournaments")
    assert request.headers["Idempotency-Key"]
    assert request.body["problems"] == ["p@2", "set:mazes"]
    assert (request.body["budget"], request.body["seeds"]) == ({"evaluations": 90, "tokens": 500}, [0, 1])
    assert request.body["baseline"] == "base-independent"
    names = [entrant["name"] for entrant in request.body["entrants"]]
    assert names == ["base-independent", "new-independent", "base-evolved", "new-evolved"]


def test_a_repeated_declaration_says_what_became_of_it(cli: Cli, service: FakeService, tmp_path: Path) -> None:
    service.on("POST", "/v1/tournaments", say(_record(state="paused", reason="the endpoint moves"), 202))
    (tmp_path / "t.json").write_text("{}")
    outcome = cli("tournaments", "create", "--file", tmp_path / "t.json")
    assert (outcome.code, outcome.lines) == (ExitCode.OK, ["synthetic exists already: paused: the endpoint moves"])


def test_an_engine_may_have_any_name_and_a_near_one_is_asked_for(
    cli: Cli, service: FakeService, tmp_path: Path
) -> None:
    entrants = [{"name": name, "policy": "q", "engine": name} for name in ("mine", "opnevolve", "gepa")]
    declared = schedule_of(8, 2, 3, entrants=entrants, baseline="mine").declared
    service.on("POST", "/v1/tournaments", say(_record(declared, ended=0), 202))
    (tmp_path / "t.json").write_text("{}")
    said = cli("tournaments", "create", "--file", tmp_path / "t.json").err
    assert "It waits for engine 'mine'.\nStart it with: speciate engines run mine --command \"python …\"\n" in said
    assert "Start it with: speciate engines run gepa\n" in said
    assert "It waits for engine 'opnevolve'. Did you mean 'openevolve'" in said


def test_best_of_n_has_no_evolved_group(cli: Cli, service: FakeService) -> None:
    service.on("POST", "/v1/tournaments", say(_record(ended=0), 202))
    args = [
        "tournaments",
        "create",
        "mine",
        "--problem",
        "p",
        "-p",
        "base",
        "-p",
        "new",
        "-b",
        90,
        "-s",
        "best_of_n",
        "-y",
    ]
    assert cli(*args).code == ExitCode.OK
    (request,) = service.requests
    assert [entrant["name"] for entrant in request.body["entrants"]] == ["base-independent", "new-independent"]
    refused = cli(*args, "--mutator", "program-mutator")
    assert refused.code == ExitCode.INVALID
    assert "'best_of_n' never changes a parent, so a common mutator does nothing. Omit --mutator" in refused.err


def test_methods_are_declared_by_their_training_runs(cli: Cli, service: FakeService) -> None:
    declared = methods_of(3, 3).declared
    service.on("POST", "/v1/tournaments", say(_record(declared, ended=0), 202))
    _serve_set(service, "mazes", 5)
    runs = ["--method", "grpo=g-a,g-b", "--method", "vpo=v-a:3, v-b:4"]
    refused = cli("tournaments", "create", "mine", "--set", "mazes", "-b", 90, *runs)
    assert "cannot show a difference between methods" in refused.err
    assert service.asked("/v1/tournaments") == []
    outcome = cli("tournaments", "create", "mine", "--set", "mazes", "-b", 90, *runs, "--yes")
    assert outcome.code == ExitCode.OK, outcome.err
    told = " ".join(outcome.err.split())
    assert "3 paired training seeds cannot show a difference between methods: p is at least 0.25" in told
    sent = service.asked("/v1/tournaments")[0].body["entrants"]
    assert [(e["policy"], e["method"], e["training_seed"]) for e in sent[:4]] == [
        ("g-a", "grpo", 0),
        ("g-b", "grpo", 1),
        ("v-a", "vpo", 3),
        ("v-b", "vpo", 4),
    ]
    service.on("GET", PATH, say(_record(declared)))
    assert "m1-s2: q1-2@1; method m1, training seed 2; vector_evolution" in cli("tournaments", "show", "synthetic").out


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--method", "vpo", "--method", "grpo=g"], "expected NAME=POLICY[:SEED]"),
        (["--method", "vpo=a:x", "--method", "grpo=g"], "expected NAME=POLICY[:SEED]"),
        (["--method", "vpo=a,", "--method", "grpo=g"], "expected NAME=POLICY[:SEED]"),
        (["--method", "vpo=a", "--method", "vpo=b"], "names a method twice"),
        (["--method", "vpo=a", "--method", "grpo=b", "-p", "base"], "exclude each other"),
        (["--method", "vpo=a", "-p", "base"], "exclude each other"),
        (["-p", "base", "-p", "base"], "policy 'base' is named twice"),
        (["--method", "VPO=a", "--method", "grpo=b"], "--method: 'VPO': expected lower-case"),
        (["-p", "No Name", "-p", "b"], "--policy: 'No Name-independent': expected lower-case"),
    ],
)
def test_invalid_methods_are_rejected(cli: Cli, service: FakeService, given: list[str], message: str) -> None:
    outcome = cli("tournaments", "create", "mine", "--set", "s", "-b", 5, *given)
    assert outcome.code == ExitCode.INVALID
    assert message in " ".join(outcome.err.split())
    assert service.requests == []


def test_declaration_from_a_file(cli: Cli, service: FakeService, tmp_path: Path) -> None:
    service.on("POST", "/v1/tournaments", say(_record(ended=0), 202))
    declared = tmp_path / "t.toml"
    declared.write_text('slug = "x"\nseeds = [1]\n')
    assert cli("tournaments", "create", "--file", declared).code == ExitCode.OK
    assert service.requests[0].body == {"slug": "x", "seeds": [1]}
    declared.write_text('slug = "x"\n[budget]\nevaluations = 1000001\n')
    assert "1,000,001 evaluations" in cli("tournaments", "create", "--file", declared).err
    assert cli("tournaments", "create", "--file", declared, "--yes").code == ExitCode.OK
    declared.write_text("slug = ")
    outcome = cli("tournaments", "create", "--file", declared)
    assert outcome.code == ExitCode.INVALID
    assert "t.toml" in outcome.err


@pytest.mark.parametrize(("extra", "option"), [(["mine"], "NAME"), (["-b", 9], "--budget"), (["--set", "s"], "--set")])
def test_options_beside_a_file_are_rejected(
    cli: Cli, service: FakeService, tmp_path: Path, extra: list[object], option: str
) -> None:
    declared = tmp_path / "t.toml"
    declared.write_text('slug = "x"\n')
    outcome = cli("tournaments", "create", *extra, "--file", declared)
    assert outcome.code == ExitCode.INVALID
    assert f"--file and {option} exclude each other" in outcome.err
    assert service.requests == []


def test_fewer_than_two_policies_are_rejected(cli: Cli, service: FakeService) -> None:
    outcome = cli("tournaments", "create", "mine", "--set", "s", "-p", "base", "-b", 5)
    assert outcome.code == ExitCode.INVALID
    assert "at least two --policy" in outcome.err
    assert service.requests == []


def test_list_show_and_verbs(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/tournaments", page(_record()))
    service.on("GET", PATH, say(_record(state="paused", reason="\x1b[2Jlunch")))
    for action in ("pause", "resume", "cancel", "extend"):
        service.on("POST", f"{PATH}:{action}", say(_record()))
    assert cli("tournaments", "list").lines[1].split() == ["synthetic", "running", "2", "3", "3", "of", "12"]
    shown = cli("tournaments", "show", "synthetic").out
    assert "paused: \ufffd[2Jlunch" in shown
    assert "e1 with e0" in shown
    for action in ("pause", "resume", "cancel"):
        lines = cli("tournaments", action, "synthetic").lines
        assert lines == ["synthetic is running (3 of 12 runs ended)"]
    cli("tournaments", "extend", "synthetic", "--reason", "power", "--set", "s", "--seed", 9)
    assert service.requests[-1].body == {"reason": "power", "problems": ["set:s"], "seeds": [9]}


def test_unknown_tournament(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/tournaments/none", problem(404, "not-found", "there is no tournament 'none'."))
    outcome = cli("tournaments", "show", "none")
    assert (outcome.code, outcome.err) == (
        ExitCode.NOT_FOUND,
        "error: there is no tournament 'none'. See `speciate tournaments list`.\n",
    )


@pytest.mark.parametrize(
    ("state", "code"), [("completed", ExitCode.OK), ("paused", ExitCode.PAUSED), ("cancelled", ExitCode.FAILED)]
)
def test_watch_ends_with_the_tournament(
    cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch, state: str, code: ExitCode
) -> None:
    monkeypatch.setattr(lifecycle, "POLL_S", 0.0)
    waits = _record(reason="waits for engine 'mine'")
    service.on("GET", PATH, *map(say, (_record(), _record(), waits, _record(state=state, ended=12, reason="so"))))
    outcome = cli("tournaments", "watch", "synthetic")
    assert outcome.code == code
    assert outcome.lines[:5] == [
        f"{_record()['id']}  {service.url}/tournaments/synthetic",
        "synthetic: 3 of 12 runs ended",
        "synthetic: 3 of 12 runs ended; waits for engine 'mine'",
        "synthetic: 12 of 12 runs ended",
        f"synthetic is {state}: so (12 of 12 runs ended)",
    ]


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_ctrl_c_says_that_the_tournament_goes_on(
    cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(lifecycle.time, "sleep", interrupt)
    service.on("GET", PATH, say(_record()))
    outcome = cli("tournament", "watch", "synthetic", *options)
    assert outcome.code == ExitCode.INTERRUPTED
    assert outcome.err.splitlines() == [
        "The tournament goes on in the service.",
        "Watch it again with: speciate tournaments watch synthetic",
        "Stop it with: speciate tournaments cancel synthetic",
    ]


def test_watch_as_json_prints_the_final_state(cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "POLL_S", 0.0)
    service.on("GET", PATH, say(_record(ended=12)), say(_record(ended=12)), say(_record(state="completed", ended=12)))
    lines = [json.loads(line) for line in cli("tournaments", "watch", "synthetic", "--json").lines]
    assert [line["state"] for line in lines] == ["running", "completed"]


def test_watch_survives_a_restart_of_the_service(
    cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lifecycle, "POLL_S", 0.0)
    monkeypatch.setattr(common, "_FIRST_DELAY_S", 0.001)
    away = problem(503, "unavailable", "this process is stopping.")
    service.on("GET", PATH, say(_record()), away, away, say(_record(state="completed", ended=12)))
    assert cli("tournaments", "watch", "synthetic").code == ExitCode.OK


def test_watch_ends_if_the_service_stays_away(cli: Cli, service: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "POLL_S", 0.0)
    monkeypatch.setattr(common, "RETRY_LIMIT_S", 0.0)
    service.on("GET", PATH, say(_record()), problem(503, "unavailable", "PostgreSQL is away."))
    outcome = cli("tournaments", "watch", "synthetic")
    assert (outcome.code, outcome.err) == (ExitCode.UNREACHABLE, "error: PostgreSQL is away.\n")


def test_report_is_printed_and_exported(cli: Cli, service: FakeService, tmp_path: Path) -> None:
    schedule = schedule_of(32, 2, 2)
    report = report_of(schedule, results_of(schedule, shift=8.0))
    service.on("GET", f"{PATH}/report", say(report.model_dump(mode="json")))
    short = cli("tournaments", "report", "synthetic").lines
    titles = ("Standings", "Differences", "Unlock matrix: runs that reached the target, of n")
    assert (short[0], [title for title in titles if title in short]) == (conclusion(report), list(titles[:2]))
    table = [" ".join(line.split()) for line in short]
    assert any(line.startswith("e1 64 0 32 of 32 1 n=32 53.8 [") for line in table)
    assert "e1 − e0 +0.531 [+0.406, +0.672] n=32 23 / 9 / 0 0.0001 better" in table
    assert short[-2] == f"All {len(sections(report))} tables: speciate tournaments report synthetic --full"
    shown = cli("tournaments", "report", "synthetic", "--full", "--rows", 3)
    assert shown.lines[0] == conclusion(report)
    assert shown.lines[1].startswith("Checkpoint e1 is better than checkpoint e0 (sign-flip test")
    assert "… and 29 more: speciate tournaments export synthetic --out report.html" in shown.lines
    assert json.loads(cli("tournaments", "report", "synthetic", "--json").out) == report.model_dump(mode="json")
    for suffix, beginning in (("html", "<!doctype html>"), ("json", "{"), ("csv", "tournament,problem,entrant")):
        out = tmp_path / f"r.{suffix}"
        assert cli("tournaments", "export", "synthetic", "--out", out).code == ExitCode.OK
        assert out.read_text().startswith(beginning)
    assert len((tmp_path / "r.csv").read_text().splitlines()) == 1 + 32 * 2
    refused = cli("tournaments", "export", "synthetic", "--out", tmp_path / "r.xlsx")
    assert refused.code == ExitCode.INVALID
    assert "ends in .html, .json, .csv, .jsonl, .parquet" in refused.err
    assert cli("tournaments", "export", "synthetic").code == ExitCode.INVALID
    assert "expected html" in cli("tournaments", "export", "synthetic", "--format", "xlsx").err
    unwritable = cli("tournaments", "export", "synthetic", "--out", tmp_path / "no" / "r.csv")
    assert unwritable.code == ExitCode.CONFLICT


def test_bundle_is_written_and_verified(cli: Cli, service: FakeService, tmp_path: Path) -> None:
    schedule = schedule_of(8, 2, 2)
    service.on("GET", f"{PATH}/bundle", say(bundle_of(schedule, results_of(schedule)), kind="application/zip"))
    out = tmp_path / "s.zip"
    assert cli("tournaments", "export", "synthetic", "--bundle", out).code == ExitCode.OK
    assert cli("tournaments", "export", "synthetic", "--bundle", out, "--format", "csv").code == ExitCode.INVALID
    asked = len(service.requests)
    verified = cli("tournaments", "verify", out, "--key", PUBLIC)
    assert (verified.code, verified.lines[0], verified.lines[-1]) == (ExitCode.OK, "archive: passed", "page: passed")
    assert f"declaration {schedule.declared.digest}, signed by {PUBLIC}" in verified.err
    foreign = cli("tournaments", "verify", out, "--key", "00" * 32)
    assert (foreign.code, "signature: FAILED" in foreign.lines) == (ExitCode.FAILED, True)
    out.write_bytes(out.read_bytes()[:-30])
    truncated = cli("tournaments", "verify", out, "--json")
    assert truncated.code == ExitCode.FAILED
    assert "no complete ZIP archive" in json.loads(truncated.out)["faults"]["archive"][0]
    assert cli("tournaments", "verify", tmp_path / "none.zip").code == ExitCode.INVALID
    assert len(service.requests) == asked
