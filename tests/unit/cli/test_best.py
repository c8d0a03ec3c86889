"""The answer of a run: ``speciate best``, and the end of a watch."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from speciate import __version__
from speciate.cli.errors import ExitCode
from speciate.domain.language import Language
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.problem import ProblemKind
from tests.unit.cli.conftest import Cli
from tests.unit.client.fake_service import (
    END,
    RUN,
    FakeService,
    best,
    candidate_json,
    event,
    page,
    problem_json,
    run_json,
    say,
    serve_best,
    stream,
)

PROGRAM = "def solve():\n    return 1\n"
BEST = best("first", radius=2.5)
DONE = run_json(state="completed", reached=["first"], unlocked=True, best=BEST.model_dump(mode="json"))
DIRECTORY = Path("best", "packing-00000007")


@pytest.fixture
def done(service: FakeService) -> FakeService:
    """A completed run whose best candidate is number 9."""
    service.on("GET", f"/v1/runs/{RUN}", say(DONE))
    service.on("GET", f"/v1/runs/{RUN}/events", stream(event(1), END))
    service.on("GET", f"/v1/runs/{RUN}/candidates/1", say(candidate_json(1)))
    return service


def test_standard_output_is_the_program_and_nothing_else(cli: Cli, done: FakeService) -> None:
    hostile = "s = '\x1b[2J'\r\nt = '\u202e\u4e2d'"
    serve_best(done, program=hostile)
    outcome = cli("best", RUN)
    assert (outcome.code, outcome.out) == (ExitCode.OK, f"{hostile}\n")
    assert outcome.err.splitlines() == [
        "best        candidate 9",
        "rewards     radius 2.5 (seed 1, 1.5 better)",
        "meets       first",
        f"trade-offs  2: speciate best {RUN} --front",
        f"page        {done.url}/runs/{RUN}",
    ]


def test_the_seed_as_the_best_says_that_nothing_better_was_found(cli: Cli, service: FakeService) -> None:
    seed = best(radius=1.0).model_copy(update={"number": 1}).model_dump(mode="json")
    serve_best(service, number=1)
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(state="completed", reached=["first"], unlocked=True, best=seed)))
    lines = cli("best", RUN).err.splitlines()
    assert lines[:2] == [
        "best         candidate 1, the seed program: nothing better was found",
        "rewards      radius 1 (as the seed)",
    ]


def test_a_terminal_gets_no_control_characters(cli: Cli, done: FakeService, monkeypatch: pytest.MonkeyPatch) -> None:
    serve_best(done, program="s = '\x1b[2J'\n")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert cli("best", RUN).out == "s = '\ufffd[2J'\n"


def test_rewards_that_a_candidate_could_forge_are_marked(cli: Cli, done: FakeService) -> None:
    serve_best(done, definition={"kind": ProblemKind.IN_PROCESS, "confirmations": 1})
    mark = "FORGEABLE: candidates share a process with their scorer"
    assert f"mark        {mark}" in cli("best", RUN).err.splitlines()
    assert f"mark        {mark}" in cli("runs", "watch", RUN).lines
    assert json.loads((DIRECTORY / "best.json").read_text())["mark"] == mark


def test_the_file_has_what_evaluations_after_the_end_measured(cli: Cli, service: FakeService) -> None:
    final = BEST.model_copy(update={"evaluations": 5, "margin": {"radius": 0.25}}).model_dump(mode="json")
    serve_best(service)
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(state="completed", best=final)))
    facts = json.loads(cli("best", RUN, "--json").out)
    assert (facts["rewards"], facts["evaluations"], facts["margin"]) == ({"radius": 2.5}, 5, {"radius": 0.25})


def test_a_watch_ends_with_the_answer_and_writes_it(cli: Cli, done: FakeService) -> None:
    serve_best(done)
    done.on("POST", "/v1/runs", say(run_json(), 202))
    outcome = cli("run", "packing", "-p", "mutator", "-b", 9, "--watch")
    assert outcome.lines[-6:] == [
        "best        candidate 9",
        "rewards     radius 2.5 (seed 1, 1.5 better)",
        "meets       first",
        f"trade-offs  2: speciate best {RUN} --front",
        f"written to  {DIRECTORY}/candidate.py",
        f"page        {done.url}/runs/{RUN}",
    ]
    assert (DIRECTORY / "candidate.py").read_text() == PROGRAM
    assert json.loads((DIRECTORY / "best.json").read_text()) == {
        "run": str(RUN),
        "page": f"{done.url}/runs/{RUN}",
        "problem": {"name": "packing@1", "digest": "d", "evaluator_digest": "e"},
        "policies": [{"role": "propose", "name": "mutator@3", "digest": "policy-digest"}],
        "strategy": "adaptive_evolution",
        "strategy_options": {},
        "seed": 0,
        "candidate": 9,
        "id": str(UUID(int=109)),
        "parents": [],
        "rewards": {"radius": 2.5},
        "evaluations": 1,
        "margin": {},
        "scalar": None,
        "targets": ["first"],
        "confirmed": ["first"],
        "lineage": [{"number": 1, "role": "seed", "parents": [], "rewards": {"radius": 1.0}}],
        "tier": "A",
        "mark": "",
        "program_hash": "0" * 64,
        "files": ["candidate.py"],
        "speciate": __version__,
    }
    # A second watch of the same run replaces its own answer.
    assert cli("runs", "watch", RUN).code == ExitCode.OK


@pytest.mark.parametrize("options", [["--no-out"], ["--json"]])
def test_a_watch_that_writes_nothing(cli: Cli, done: FakeService, options: list[str]) -> None:
    serve_best(done)
    outcome = cli("runs", "watch", RUN, *options)
    assert outcome.code == ExitCode.OK
    assert "written to" not in outcome.out
    assert not Path("best").exists()


def test_a_watch_as_json_writes_to_a_given_directory(cli: Cli, done: FakeService) -> None:
    serve_best(done)
    outcome = cli("runs", "watch", RUN, "--json", "--out", "mine")
    assert [json.loads(line)["seq"] for line in outcome.lines] == [1]
    assert Path("mine", "candidate.py").read_text() == PROGRAM


def test_a_directory_with_other_files_is_never_written(cli: Cli, done: FakeService) -> None:
    serve_best(done)
    Path("mine").mkdir()
    Path("mine", "candidate.py").write_text("precious")
    for command in (["best", RUN], ["runs", "watch", RUN]):
        outcome = cli(*command, "--out", "mine")
        assert (outcome.code, outcome.out) == (ExitCode.CONFLICT, "")
        assert "mine holds other files" in outcome.err
    Path("mine", "best.json").write_text(json.dumps({"run": str(UUID(int=8))}))
    assert f"holds the answer of run {UUID(int=8)}" in cli("best", RUN, "--out", "mine").err
    assert Path("mine", "candidate.py").read_text() == "precious"
    # Before a run starts, not after it has spent its budget.
    outcome = cli("run", "packing", "-p", "m", "-b", 9, "--watch", "--out", "mine")
    assert outcome.code == ExitCode.CONFLICT
    assert "/v1/runs" not in {request.path for request in done.requests}


def test_a_failed_write_does_not_change_the_exit_code_of_a_watch(cli: Cli, done: FakeService) -> None:
    serve_best(done)
    Path("best").write_text("a file")
    outcome = cli("runs", "watch", RUN)
    assert outcome.code == ExitCode.OK
    assert "The best program is not written: best/packing-00000007 cannot be written" in outcome.err
    assert "candidate 9" in outcome.out


def test_out_needs_watch(cli: Cli, service: FakeService) -> None:
    outcome = cli("run", "packing", "-p", "m", "-b", 9, "--out", "mine")
    assert outcome.code == ExitCode.INVALID
    assert "--watch" in outcome.err
    assert service.requests == []


FILES = "# === file: candidate.py ===\nimport a\n# === file: pack/best.py ===\nx = 1\n"


def test_each_file_of_a_program_has_its_name(cli: Cli, done: FakeService) -> None:
    old = candidate_json(9, program="# === file: candidate.py ===\n# === file: old.py ===\n")
    done.on("GET", f"/v1/runs/{RUN}/candidates/9", say(old))
    serve_best(done, definition={"many_files": True, "seed_program": ""}, program=FILES)
    assert cli("best", RUN, "--out", "mine").out == "mine/program\n"
    assert cli("best", RUN, "--out", "mine").out == "mine/program\n"
    found = {str(path.relative_to("mine")) for path in Path("mine").rglob("*") if path.is_file()}
    assert found == {"best.json", "program/candidate.py", "program/pack/best.py"}
    assert Path("mine", "program", "pack", "best.py").read_text() == "x = 1\n"


def test_a_file_name_cannot_leave_the_directory(cli: Cli, done: FakeService) -> None:
    hostile = "# === file: candidate.py ===\n# === file: ../../evil.py ===\n"
    serve_best(done, definition={"many_files": True, "seed_program": ""}, program=hostile)
    assert cli("best", RUN, "--out", "mine").code == ExitCode.OK
    found = {str(path) for path in Path().rglob("*") if path.is_file()}
    assert found == {"mine/best.json", "mine/program/candidate.txt"}


@pytest.mark.parametrize(
    ("values", "program", "name"),
    [
        ({"language": Language(name="C", file="main.c", run=("./main",))}, "int main;", "main.c"),
        ({"kind": ProblemKind.DATA}, '{"a": 1}', "candidate.json"),
        ({"kind": ProblemKind.DATA}, "up down", "candidate.txt"),
        ({"kind": ProblemKind.DATA}, "[a-z]+", "candidate.txt"),
    ],
)
def test_the_file_has_the_ending_of_the_language(
    cli: Cli, done: FakeService, values: dict[str, Any], program: str, name: str
) -> None:
    serve_best(done, definition=values, program=program)
    assert cli("best", RUN, "--out", "mine").out == f"mine/{name}\n"
    assert Path("mine", name).read_text() == program


def test_best_as_json_has_the_facts_and_the_program(cli: Cli, done: FakeService) -> None:
    serve_best(done)
    shown = json.loads(cli("best", RUN, "--json").out)
    assert (shown["candidate"], shown["program"], shown["seed"]) == (9, PROGRAM, 0)


def test_the_front_is_listed_printed_and_written(cli: Cli, done: FakeService) -> None:
    serve_best(done)
    serve_best(done, 5)
    other = BEST.model_copy(update={"number": 5, "targets": ()})
    done.on("GET", f"/v1/runs/{RUN}/front", page(*(each.model_dump(mode="json") for each in (BEST, other))))
    assert cli("best", RUN, "--front").out == cli("candidates", "top", RUN).out
    assert [line.split()[0] for line in cli("best", RUN, "--front").lines] == ["number", "9", "5"]
    assert [json.loads(line)["candidate"] for line in cli("best", RUN, "--front", "--json").lines] == [9, 5]
    assert cli("best", RUN, "--front", "--out", "mine").lines == ["mine/9/candidate.py", "mine/5/candidate.py"]
    assert json.loads(Path("mine/5/best.json").read_text())["targets"] == []
    for name in ("5/more", "7", "8"):
        Path("mine", name).mkdir()
    Path("mine/8/best.json").write_text(json.dumps({"run": str(UUID(int=1))}))
    done.on("GET", f"/v1/runs/{RUN}/front", page(BEST.model_dump(mode="json")))  # from the second request on
    assert [cli("best", RUN, "--front", "--out", "mine").code for _ in range(2)] == [ExitCode.OK] * 2
    assert sorted(path.name for path in Path("mine").iterdir()) == ["7", "8", "9"]  # 5 has left the front


OVERLAP = Objective(name="overlap", direction=Direction.MINIMIZE, role=ObjectiveRole.CONSTRAINT)


def test_without_a_feasible_candidate_the_nearest_and_what_it_lacks(cli: Cli, service: FakeService) -> None:
    service.on("GET", f"/v1/runs/{RUN}", say(run_json(state="completed", best=None)))
    service.on("GET", f"/v1/runs/{RUN}/events", stream(event(1), END))
    service.on("GET", f"/v1/runs/{RUN}/candidates/1", say(candidate_json(1)))
    service.on("GET", f"/v1/runs/{RUN}/candidates/4", say(candidate_json(4)))
    radius = Objective(name="radius", range=(0.0, 10.0))
    service.on("GET", f"/v1/problems/{UUID(int=1)}", say(problem_json(objectives=(radius, OVERLAP))))
    cells = [
        {
            "island": 0,
            "cell": "c",
            "fitness": 1.0,
            "elite": {"id": str(RUN), "number": number, "rewards": {"radius": 3.0, "overlap": by}, "targets": []},
        }
        for number, by in ((3, 0.5), (4, 0.25))
    ]
    service.on("GET", f"/v1/runs/{RUN}/archive", page(*cells), page(*cells), page(*cells), page())
    lacking = f"run {RUN} has no feasible candidate. The nearest is candidate 4: overlap must be <= 0, is 0.25."
    outcome = cli("best", RUN)
    assert (outcome.code, outcome.out) == (ExitCode.NOT_FOUND, "")
    assert outcome.err.startswith(f"error: {lacking}")
    service.on("GET", f"/v1/runs/{RUN}/unlocks", page())
    assert lacking in cli("runs", "show", RUN).out
    watched = cli("runs", "watch", RUN)
    assert watched.code == ExitCode.NOT_UNLOCKED
    assert lacking in watched.err
    assert "none of its 40 candidates has rewards" in cli("best", RUN, "--out", "mine").err
    assert not Path("best").exists()
