"""``speciate problems import`` converts another system's directory without a service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evaluators.contained import landlock
from speciate.cli.errors import ExitCode
from speciate.compat.naming import Packages
from speciate.problems.loader import load_problem
from tests.unit.cli.conftest import Cli
from tests.unit.compat.directories import OPENEVOLVE, SHINKA, made


def test_directory_is_converted_to_a_problem(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = made(tmp_path / "line", OPENEVOLVE)
    (theirs / "README.md").write_text("x")
    monkeypatch.chdir(tmp_path)
    outcome = cli("problems", "import", "openevolve:line")
    assert outcome.code == ExitCode.OK, outcome.err
    assert "combined_score              0.4  maximize   objective" in outcome.lines
    assert "omitted: README.md describes the problem but is not part of it" in outcome.lines
    assert outcome.lines[-1].endswith("speciate problems add openevolve-line-problem")
    assert load_problem(tmp_path / "openevolve-line-problem").slug == "openevolve-line"
    checked = json.loads(cli("problems", "check", tmp_path / "openevolve-line-problem", "--json").out)
    assert (checked["ok"], checked["rewards"]["combined_score"]) == (True, 0.4)
    monkeypatch.setattr("speciate.cli.problems.check.evaluate_seed", lambda *_: pytest.fail("scored"))
    again = cli("problems", "import", "openevolve:line")
    assert (again.code, "--into" in again.err) == (ExitCode.CONFLICT, True)


def test_rewards_and_output_directory_can_be_chosen(cli: Cli, tmp_path: Path) -> None:
    theirs, ours = made(tmp_path / "tours", SHINKA), tmp_path / "deep" / "ours"
    outcome = cli(
        "problems",
        "import",
        f"shinka:{theirs}",
        "--minimize",
        "length",
        "--into",
        ours,
        "--json",
        "--slug",
        "my-tours",
        "--wall-s",
        "12.5",
        "--memory-mb",
        "512",
        "--limit",
        "cores=2",
        "--limit",
        "tmp_bytes=6.4e7",
    )
    found = json.loads(outcome.out)
    assert found["rewards"] == {"length": 15, "correct": 1, "combined_score": -15}
    assert found["artifacts"]["feedback"] == "walk less"
    assert set(found["files"]) == {str(path) for path in ours.iterdir()}
    problem = load_problem(ours)
    limits = problem.limits
    assert (problem.slug, limits.wall_s, limits.memory_bytes) == ("my-tours", 12.5, 512 << 20)
    assert (limits.cores, limits.cpu_s, limits.tmp_bytes) == (2, 25, 64_000_000)


@pytest.mark.parametrize(
    ("source", "options", "code", "named"),
    [
        (
            "funsearch:line",
            [],
            ExitCode.INVALID,
            "task:NAME, openevolve:DIR, shinka:DIR, skydiscover:DIR, alphaevolve:DIR, harbor:DIR",
        ),
        ("openevolve:", [], ExitCode.INVALID, "openevolve:DIR"),
        ("openevolve:nowhere", [], ExitCode.NOT_FOUND, "initial_program.py and an evaluator"),
        ("openevolve:line", ["--minimize", "lost"], ExitCode.INVALID, "It returned combined_score, loss, runs"),
        ("openevolve:line", ["--slug", 'x"\ny'], ExitCode.INVALID, "lower-case words joined by hyphens"),
        ("openevolve:line", ["--slug", "a" * 81], ExitCode.INVALID, "at most 80"),
        ("openevolve:line", ["--image", "a"], ExitCode.INVALID, "--image is for tasks of Harbor"),
        ("openevolve:line", ["--limit", "cores"], ExitCode.INVALID, "Pass NAME=NUMBER with one of wall_s, cpu_s"),
        ("openevolve:line", ["--limit", "core=3"], ExitCode.INVALID, "--limit is 'core=3'"),
        ("openevolve:line", ["--limit", "cores=0"], ExitCode.INVALID, "limits.cores"),
        ("openevolve:line", ["--requirement", "./x"], ExitCode.INVALID, "requirements, value 1"),
        ("openevolve:fails", [], ExitCode.INVALID, "unlucky"),
        ("task:maze", ["--slug", "a"], ExitCode.INVALID, "--slug"),
        ("openevolve:line", ["--into", "line"], ExitCode.CONFLICT, "line is not empty"),
        ("openevolve:line", ["--into", "line/wanted.txt"], ExitCode.CONFLICT, "cannot be written"),
        ("openevolve:starts", [], ExitCode.INVALID, "evaluator.py uses subprocess"),
        ("openevolve:hides", [], ExitCode.INVALID, "ModuleNotFoundError: No module named 'jaxx'"),
        ("openevolve:hides", [], ExitCode.INVALID, "Add the package of jaxx to `requirements`"),
        ("openevolve:needs", [], ExitCode.UNREACHABLE, "The environment for jaxx>=0.4, numpy cannot be built"),
        ("openevolve:zero", [], ExitCode.INVALID, "no positive score (combined_score = 0)"),
        ("openevolve:zero", [], ExitCode.INVALID, "--anyway"),
        ("openevolve:prints", [], ExitCode.INVALID, "Put a.json beside the evaluator"),
        ("openevolve:loss", [], ExitCode.INVALID, "ValueError: no data"),
        ("openevolve:unsure", [], ExitCode.INVALID, "which task is meant?"),
        ("openevolve:slow", ["--wall-s", "0.5"], ExitCode.INVALID, "Raise the limit with --wall-s."),
        ("openevolve:empty", [], ExitCode.INVALID, "initial_program.py is empty"),
        ("openevolve:line", ["--target", "lost > 1"], ExitCode.INVALID, "returned combined_score, runs, loss"),
        ("openevolve:line", ["--target", "loss"], ExitCode.INVALID, "target 'loss'"),
        ("task:maze", ["--maximize", "a"], ExitCode.INVALID, "--maximize"),
    ],
)
def test_import_errors_name_the_cause(
    cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    options: list[str],
    code: ExitCode,
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "line", OPENEVOLVE)
    starts = "import subprocess\ndef evaluate(path):\n    return {'n': subprocess.call(['ls'])}\n"
    made(tmp_path / "starts", OPENEVOLVE, evaluator_py=starts)
    hides = (
        "def evaluate(path):\n    try:\n        import jaxx\n    except Exception as error:\n"
        "        return {'combined_score': 0.0, 'error': f'{type(error).__name__}: {error}'}\n"
    )
    made(tmp_path / "hides", OPENEVOLVE, evaluator_py=hides)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    (made(tmp_path / "needs", OPENEVOLVE, evaluator_py=hides) / "requirements.txt").write_text(
        "openevolve>=0.2\njaxx>=0.4\nnumpy\n"
    )
    made(tmp_path / "zero", OPENEVOLVE, evaluator_py="def evaluate(path):\n    return {'combined_score': 0.0}\n")
    made(tmp_path / "empty", OPENEVOLVE, initial_program_py="")
    loss = "def evaluate(path):\n    return {'combined_score': 0.0, 'loss': 1e5, 'error': 'ValueError: no data'}\n"
    made(tmp_path / "loss", OPENEVOLVE, evaluator_py=loss)
    made(tmp_path / "unsure", OPENEVOLVE, evaluator_py=loss.replace("ValueError: no data", "which task is meant?"))
    prints = (
        "def evaluate(path):\n    try:\n        open('a.json')\n    except OSError as error:\n"
        "        print('evaluation failed:', error)\n    return {'combined_score': 0.0, 'eval_time': 3}\n"
    )
    made(tmp_path / "prints", OPENEVOLVE, evaluator_py=prints)
    slow = "import time\ndef evaluate(path):\n    time.sleep(9)\n"
    made(tmp_path / "slow", OPENEVOLVE, evaluator_py=slow)
    fails = (
        "import random\ndef evaluate(path):\n    if random.random() < 0.5:  # with seed 1, not with seed 0\n"
        "        raise ValueError('unlucky')\n    return {'combined_score': 1.0}\n"
    )
    made(tmp_path / "fails", OPENEVOLVE, evaluator_py=fails)
    outcome = cli("problems", "import", source, *options)
    assert (outcome.code, named in outcome.err) == (code, True), outcome.err
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "empty",
        "fails",
        "hides",
        "line",
        "loss",
        "needs",
        "prints",
        "slow",
        "starts",
        "unsure",
        "zero",
    ]


def test_an_initial_program_without_a_score_can_be_accepted(cli: Cli, tmp_path: Path) -> None:
    theirs = made(
        tmp_path / "zero", OPENEVOLVE, evaluator_py="def evaluate(path):\n    return {'combined_score': 0.0}\n"
    )
    outcome = cli("problems", "import", f"openevolve:{theirs}", "--into", tmp_path / "ours", "--anyway")
    assert outcome.code == ExitCode.OK, outcome.err
    assert load_problem(tmp_path / "ours").targets[0].rule == "combined_score > 1e-09"


def test_noise_of_the_initial_program_is_a_margin_of_the_target(cli: Cli, tmp_path: Path) -> None:
    noisy = (
        "import os\ncount = int.from_bytes(os.urandom(2), 'big')\n"
        "def evaluate(path):\n    return {'combined_score': 1 + count / 1e6, 'fixed': 2.0}\n"
    )
    theirs, ours = made(tmp_path / "noisy", OPENEVOLVE, evaluator_py=noisy), tmp_path / "ours"
    outcome = cli("problems", "import", f"openevolve:{theirs}", "--into", ours)
    assert outcome.code == ExitCode.OK, outcome.err
    problem = load_problem(ours)
    assert problem.stochastic
    assert problem.confirmations == 3
    assert "evaluations differ in combined_score: a target counts after three" in outcome.out
    level = float(problem.targets[0].rule.partition(">")[2])
    assert 1.0 + 1e-6 < level < 1.066, "in reach"


@pytest.mark.parametrize("place", ["Path(__file__).parent", "Path()", "Path(path).parent"])
def test_an_evaluator_that_writes_into_its_own_folder_has_a_copy(cli: Cli, tmp_path: Path, place: str) -> None:
    theirs, ours = tmp_path / "log", tmp_path / "ours"
    theirs.mkdir()
    (theirs / "initial_program.txt").write_text("1 2\n")
    (theirs / "helper.txt").write_text("3")
    (theirs / "evaluator.py").write_text(
        f"from pathlib import Path\n\n\ndef evaluate(path):\n    here = {place}\n"
        "    (here / 'temp').mkdir()\n    (here / 'temp/sum').write_text(Path(path).read_text())\n"
        "    return {'combined_score': sum(map(int, (here / 'temp/sum').read_text().split())) / 10}\n"
    )
    outcome = cli("problems", "import", f"openevolve:{theirs}", "--into", ours)
    assert outcome.code == ExitCode.OK, outcome.err
    assert "the evaluator writes into its own folder: each evaluation has a copy of it" in outcome.out + outcome.err
    checked = json.loads(cli("problems", "check", ours, "--json").out)
    assert (checked["ok"], checked["rewards"]["combined_score"]) == (True, 0.3)


def test_an_evaluator_that_writes_elsewhere_is_left_as_it_is(cli: Cli, tmp_path: Path) -> None:
    theirs = made(tmp_path / "log", OPENEVOLVE, evaluator_py="def evaluate(path):\n    open('/usr/data/log', 'w')\n")
    outcome = cli("problems", "import", f"openevolve:{theirs}", "--into", tmp_path / "ours")
    assert outcome.code == ExitCode.INVALID
    assert "/usr/data/log" in outcome.err
    assert "a copy of it" not in outcome.out + outcome.err


def test_a_demanded_package_replaces_the_line_of_the_same_package() -> None:
    found = Packages(named=("numpy>=2", "jaxx"), demanded=("numpy==1.26.4",))
    assert found.requirements == ("jaxx", "numpy==1.26.4")


LOSS = "def evaluate(path):\n    print('mean absolute error 4.5, 0 failed tests')\n    return {'combined_score': %s}\n"


@pytest.mark.parametrize("score", ["-4.5", "-1"])
def test_a_negative_score_beside_words_of_failure_is_imported(cli: Cli, tmp_path: Path, score: str) -> None:
    theirs = made(tmp_path / "loss", OPENEVOLVE, evaluator_py=LOSS % score)
    outcome = cli("problems", "import", f"openevolve:{theirs}", "--into", tmp_path / "ours")
    assert outcome.code == ExitCode.OK, outcome.err
    assert ("every score is -1" in outcome.out) == (score == "-1")


def test_a_file_left_out_is_named_where_it_is_missed(cli: Cli, tmp_path: Path) -> None:
    reads = (
        "import os\ndef evaluate(path):\n    here = os.path.dirname(os.path.abspath(__file__))\n"
        "    return {'combined_score': float(open(os.path.join(here, 'params.yaml')).read().split(':')[1])}\n"
    )
    theirs = made(tmp_path / "line", OPENEVOLVE, evaluator_py=reads)
    (theirs / "params.yaml").write_text("k: 2\n")
    missed = cli("problems", "import", f"openevolve:{theirs}", "--into", tmp_path / "ours")
    assert missed.code == ExitCode.INVALID
    assert "params.yaml was left out: it configures another system and may hold keys" in missed.err
    assert "--include params.yaml" in missed.err
    outcome = cli("problems", "import", f"openevolve:{theirs}", "--into", tmp_path / "ours", "--include", "params.yaml")
    assert outcome.code == ExitCode.OK, outcome.err
    assert load_problem(tmp_path / "ours").data_files["params.yaml"] == "k: 2\n"


def test_tier_b_says_that_it_forbids_writing(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if not landlock.abi():
        pytest.skip("this kernel has no Landlock")
    monkeypatch.setenv("SPECIATE_SANDBOX", "B")
    writes = "import tempfile\ndef evaluate(path):\n    tempfile.NamedTemporaryFile()\n"
    outcome = cli("problems", "import", f"openevolve:{made(tmp_path / 'line', OPENEVOLVE, evaluator_py=writes)}")
    assert "Tier B of the sandbox forbids writing files: install bubblewrap" in " ".join(outcome.err.split())


def test_marks_that_protect_nothing_are_noted(cli: Cli, tmp_path: Path) -> None:
    seed = 'MARK = "EVOLVE-BLOCK-START"\n'
    evaluator = "def evaluate(path):\n    return {'combined_score': 1, 'correct': 1}\n"
    theirs = made(tmp_path / "line", OPENEVOLVE, initial_program_py=seed, evaluator_py=evaluator)
    outcome = cli("problems", "import", f"openevolve:{theirs}", "--into", tmp_path / "ours")
    assert "nothing is protected" in outcome.out
    assert "nothing is protected" in cli("problems", "check", tmp_path / "ours").out
