from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from speciate.cli.errors import ExitCode
from speciate.problems.loader import load_problem
from tests.unit.cli.conftest import Cli
from tests.unit.client.fake_service import AT, FakeService, problem, say

VERSION = {
    "id": "00000000-0000-0000-0000-000000000001",
    "version": 2,
    "digest": "d",
    "evaluator_digest": "e",
    "created_at": AT.isoformat(),
}


@pytest.mark.parametrize(
    ("options", "rewards"),
    [
        ((), {"smallest_distance", "mean_offset", "outside"}),
        (("--kind", "cases", "--language", "python"), {"additive", "subtractive"}),
        (("--kind", "data"), {"length", "longest_step"}),
    ],
)
def test_init_writes_a_working_problem_with_room_for_improvement(
    cli: Cli, tmp_path: Path, options: tuple[str, ...], rewards: set[str]
) -> None:
    assert cli("problems", "init", tmp_path / "mine", *options).code == ExitCode.OK
    outcome = cli("problems", "check", tmp_path / "mine", "--json")
    found = json.loads(outcome.out)
    assert (outcome.code, found["ok"], found["problem"]) == (ExitCode.OK, True, "mine")
    assert set(found["rewards"]) == rewards
    assert found["targets"] == []


def test_init_refuses_a_language_without_a_template(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("problems", "init", tmp_path / "p", "--language", "go")
    assert outcome.code == ExitCode.INVALID
    assert "expected one of python, c, cpp, javascript, rust" in outcome.err


def test_check_shows_rewards_and_targets(cli: Cli, tmp_path: Path) -> None:
    made = cli("problems", "init", tmp_path / "My 2nd Problem")
    outcome = cli(*shlex.split(made.lines[-1].removeprefix("Next: speciate ")))
    assert outcome.lines[0] == "my-2nd-problem: Spread ten points in a square"
    assert "smallest_distance      0.15  maximize   objective" in outcome.lines
    assert "no   tight   smallest_distance >= 0.4 and outside <= 0" in outcome.lines


def test_schema_prints_the_schema_that_init_writes(cli: Cli, tmp_path: Path) -> None:
    cli("problems", "init", tmp_path / "p")
    assert cli("problems", "schema").out == (tmp_path / "p" / "problem.schema.json").read_text()


def test_init_does_not_overwrite_files(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "seed.py").write_text("dear")
    assert cli("problems", "init", tmp_path).code == ExitCode.CONFLICT
    assert [path.name for path in tmp_path.iterdir()] == ["seed.py"]
    assert cli("problems", "init", tmp_path / "seed.py" / "below").code == ExitCode.CONFLICT


def test_malformed_problem_is_reported_with_file_and_line(cli: Cli, tmp_path: Path) -> None:
    cli("problems", "init", tmp_path / "p")
    path = tmp_path / "p" / "problem.toml"
    path.write_text(path.read_text().replace("smallest_distance >= 0.4", "smalest_distance >= 0.4"))
    line = next(n for n, text in enumerate(path.read_text().splitlines(), 1) if "smalest_distance" in text)
    outcome = cli("problems", "check", tmp_path / "p")
    assert outcome.code == ExitCode.INVALID
    assert f"problem.toml:{line}" in outcome.err
    assert "smalest_distance" in outcome.err
    assert "Traceback" not in outcome.err


def test_check_fails_if_the_seed_program_fails(cli: Cli, tmp_path: Path) -> None:
    cli("problems", "init", tmp_path / "p")
    (tmp_path / "p" / "seed.py").write_text(
        "import sys\n\ndef solve():\n    print('candidate.py', file=sys.stderr)\n    raise ValueError('\x1b[31mred')\n"
    )
    outcome = cli("problems", "check", tmp_path / "p")
    assert outcome.code == ExitCode.FAILED
    assert "crashed" in outcome.out
    assert 'File "seed.py", line 5, in solve' in outcome.out
    assert "\nseed.py" in outcome.out
    assert "candidate.py" not in outcome.out
    assert "\x1b" not in outcome.out
    failure = json.loads(cli("problems", "check", tmp_path / "p", "--json").out)["failure"]
    assert failure["kind"] == "crashed"
    assert 'File "seed.py", line 5' in failure["detail"]


def test_check_distinguishes_evaluator_failures_from_seed_failures(cli: Cli, tmp_path: Path) -> None:
    cli("problems", "init", tmp_path / "p")
    (tmp_path / "p" / "evaluate.py").write_text("def evaluate(candidate):\n    return {}\n")
    outcome = cli("problems", "check", tmp_path / "p")
    assert outcome.code == ExitCode.FAILED
    assert "the evaluator fails on the seed program: invalid_output (evaluator_raised)" in outcome.out


def test_check_warns_if_the_seed_program_unlocks(cli: Cli, tmp_path: Path) -> None:
    cli("problems", "init", tmp_path / "p")
    path = tmp_path / "p" / "problem.toml"
    path.write_text(path.read_text().replace("smallest_distance >= 0.4", "smallest_distance >= 0.1"))
    assert "unlocked from the start" in cli("problems", "check", tmp_path / "p").out


def test_bundled_problems_are_added_by_name_or_all(cli: Cli, service: FakeService) -> None:
    from speciate.problems.loader import bundled

    definition = load_problem(bundled()["circle-packing-26"]).model_dump(mode="json")
    service.on("POST", "/v1/problems", say({**VERSION, "definition": definition, "note": "warning: noise"}, 201))
    added = cli("problems", "add", "circle-packing-26")
    assert added.lines == ["circle-packing-26@2  26 circles in the unit square"]
    assert "warning: noise" in added.err
    assert service.requests[0].body == {"definition": definition, "check": True}
    cli("problems", "add", "circle-packing-26", "--no-check")
    assert service.requests.pop().body == {"definition": definition}
    assert cli("problems", "add", "--bundled", "--json").code == ExitCode.OK
    assert len(service.requests) == 1 + len(bundled())


def test_nothing_is_submitted_if_one_problem_is_invalid(cli: Cli, service: FakeService) -> None:
    outcome = cli("problems", "add", "circle-packing-26", "no-such-thing")
    assert outcome.code == ExitCode.NOT_FOUND
    assert "sorting-network-8" in outcome.err
    assert service.requests == []
    assert cli("problems", "add").code == ExitCode.INVALID


def test_import_count_is_limited_to_the_size_of_a_set(cli: Cli, service: FakeService) -> None:
    outcome = cli("problems", "import", "task:maze", "--count", 10_001)
    assert (outcome.code, service.requests) == (ExitCode.USAGE, [])


def test_problem_show(cli: Cli, service: FakeService) -> None:
    from speciate.problems.loader import bundled

    definition = load_problem(bundled()["circle-packing-26"]).model_dump(mode="json")
    service.on("GET", "/v1/problems/circle-packing-26@2", say({**VERSION, "definition": definition}))
    outcome = cli("problems", "show", "circle-packing-26@2")
    assert any("sum_of_radii >= 2.635 and overlap <= 0" in line for line in outcome.lines)
    assert "Place 26 circles" in outcome.out


def test_unknown_problem(cli: Cli, service: FakeService) -> None:
    service.on("GET", "/v1/problems/x", problem(404, "not-found", "there is no problem 'x'."))
    outcome = cli("problems", "show", "x")
    expected = "error: there is no problem 'x'. See `speciate problems list`.\n"
    assert (outcome.code, outcome.err) == (ExitCode.NOT_FOUND, expected)


def test_unknown_bundled_problem_suggests_adding_it(cli: Cli, service: FakeService) -> None:
    missing = problem(404, "not-found", "there is no problem 'circle-packing-26@1'.")
    service.on("GET", "/v1/problems/circle-packing-26@1", missing)
    assert "`speciate problems add circle-packing-26`" in cli("problems", "show", "circle-packing-26@1").err


def test_a_mistyped_bundled_problem_is_suggested(cli: Cli, service: FakeService) -> None:
    service.on(
        "GET",
        "/v1/problems/circle-pcking-26",
        problem(404, "not-found", "there is no problem 'circle-pcking-26'."),
        problem(404, "not-found", "there is no problem 'circle-pcking-26'. Did you mean 'circle-packing-9'?"),
    )
    suggested = [cli("problems", "show", "circle-pcking-26").err for _ in range(2)]
    assert "Did you mean 'circle-packing-26'" in suggested[0]
    assert "Add bundled problems with" in suggested[0]
    assert suggested[1].endswith("Did you mean 'circle-packing-9'? See `speciate problems list`.\n")
    assert "Did you mean 'circle-packing-26'" in cli("problems", "add", "circle-pcking-26").err


def test_prompt_of_a_directory_needs_no_service(cli: Cli, tmp_path: Path) -> None:
    cli("problems", "init", tmp_path / "p")
    outcome = cli("problems", "prompt", tmp_path / "p")
    assert outcome.code == ExitCode.OK
    assert outcome.lines[0] == "──── propose: system"
    assert "──── mutate: user" in outcome.lines
    rewards = json.loads(cli("problems", "check", tmp_path / "p", "--json").out)["rewards"]
    assert rewards["smallest_distance"] > 0
    assert "Misses: tight (missing: smallest_distance >= 0.4), loose." in outcome.lines
    assert not outcome.err
    prompts = json.loads(cli("problems", "prompt", tmp_path / "p", "--json", "--diff", "--answers", "3").out)
    assert list(prompts) == ["propose", "mutate", "advise"]
    assert "Write one new piece of advice" in prompts["advise"]["user"]
    assert "<<<<<<< SEARCH" in prompts["mutate"]["system"]
    assert "Give 3 answers" in prompts["mutate"]["system"]
    others = {cli("problems", "prompt", tmp_path / "p", "--seed", str(seed)).out for seed in range(5)}
    assert len(others) > 1


def test_a_seed_program_that_fails_is_shown_as_failing(cli: Cli, tmp_path: Path) -> None:
    cli("problems", "init", tmp_path / "p")
    path = tmp_path / "p" / "seed.py"
    path.write_text(path.read_text() + "\nboom\n")
    shown = json.loads(cli("problems", "prompt", tmp_path / "p", "--json").out)
    for role in ("mutate", "advise"):
        assert "It failed: crashed (raised).\n```\nNameError: name 'boom' is not defined\n" in shown[role]["user"]
    assert "Fix this first" in shown["mutate"]["user"]


def test_prompt_of_a_submitted_problem(cli: Cli, service: FakeService) -> None:
    from speciate.problems.loader import bundled

    definition = load_problem(bundled()["circle-packing-26"]).model_dump(mode="json")
    definition["prompts"] = {"propose_requests": "Start\x1b[2J somewhere."}
    service.on("GET", "/v1/problems/circle-packing-26@2", say({**VERSION, "definition": definition}))
    outcome = cli("problems", "prompt", "circle-packing-26@2")
    assert "Start\ufffd[2J somewhere. Answer in the form given above." in outcome.lines


def test_templates_are_written_once(cli: Cli, tmp_path: Path) -> None:
    cli("problems", "init", tmp_path / "p")
    outcome = cli("problems", "templates", tmp_path / "p")
    assert outcome.code == ExitCode.OK
    named = outcome.lines[-1].partition("problem.toml: ")[2]
    path = tmp_path / "p" / "problem.toml"
    path.write_text(f"{named}\n{path.read_text()}")
    written = load_problem(tmp_path / "p")
    assert len(written.prompts) == 7
    before = cli("problems", "prompt", tmp_path / "p").out
    (tmp_path / "p" / "prompts" / "change_requests.txt").write_text("Make it shorter.\n")
    after = cli("problems", "prompt", tmp_path / "p").out
    assert ("Make it shorter." in before, "Make it shorter." in after) == (False, True)
    assert cli("problems", "templates", tmp_path / "p").code == ExitCode.CONFLICT
    assert cli("problems", "templates", tmp_path / "nowhere").code == ExitCode.NOT_FOUND


def _noisy_problem(folder: Path, *, declared: bool, script: str = "") -> Path:
    folder.mkdir()
    folder.joinpath("problem.toml").write_text(
        f'slug = "noisy"\ntitle = "Noisy"\nkind = "evaluator"\nseed = "seed.py"\nevaluator = "evaluate.py"\n'
        f"stochastic = {str(declared).lower()}\n"
        '[[objectives]]\nname = "score"\nrange = [0, 10]\n'
        '[[targets]]\nname = "good"\nrule = "score >= 9"\nunlock = true\n'
    )
    folder.joinpath("seed.py").write_text("def f():\n    return 3\n")
    folder.joinpath("evaluate.py").write_text(
        script
        or "import random\n\n\ndef evaluate(candidate, context):\n"
        '    return {"score": candidate.call("f").unwrap() + random.random()}\n'
    )
    return folder


def test_check_warns_of_noise_that_is_not_declared(cli: Cli, tmp_path: Path) -> None:
    outcome = cli("problems", "check", _noisy_problem(tmp_path / "p", declared=False))
    assert outcome.code == ExitCode.OK
    assert "score varies by" in outcome.out
    assert "by their seeds alone" in outcome.out
    assert "Add `stochastic = true`" in outcome.out
    noise = json.loads(cli("problems", "check", tmp_path / "p", "--json", "--repeats", "1").out)["noise"]
    assert (noise["evaluations"], noise["failed"], noise["same_seed_differs"]) == (3, 0, False)
    assert noise["deviations"]["score"] > 0
    assert json.loads(cli("problems", "check", tmp_path / "p", "--json", "--repeats", "0").out)["noise"] is None


def test_check_tells_the_noise_of_a_machine_and_of_failing_repeats(cli: Cli, tmp_path: Path) -> None:
    fresh = (
        'import os\n\n\ndef evaluate(candidate, context):\n    return {"score": float(os.urandom(1)[0] + 256 * '
        "(os.urandom(1)[0]))}\n"
    )
    outcome = cli("problems", "check", _noisy_problem(tmp_path / "p", declared=True, script=fresh))
    assert "also with the same seed" in outcome.out
    assert "an empty program is no failure" in outcome.out
    assert "Add `stochastic" not in outcome.out
    failing = (
        'def evaluate(candidate, context):\n    if context.seed:\n        raise ValueError("at times")\n'
        '    return {"score": 1.0}\n'
    )
    outcome = cli("problems", "check", _noisy_problem(tmp_path / "q", declared=True, script=failing))
    assert "warning: 3 of 5 evaluations of the seed program failed." in outcome.out


def test_check_notes_a_declaration_that_nothing_shows(cli: Cli, tmp_path: Path) -> None:
    exact = 'def evaluate(candidate, context):\n    return {"score": float(candidate.call("f").unwrap())}\n'
    outcome = cli("problems", "check", _noisy_problem(tmp_path / "p", declared=True, script=exact))
    assert "5 evaluations of the seed program agree" in outcome.out
