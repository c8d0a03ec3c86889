"""Imported evaluators score candidates in the sandbox as they would at home."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evaluators.evaluator import SandboxEvaluator
from speciate.compat import read_directory
from speciate.compat.draft import DraftRewards
from speciate.compat.rewards import after_trial, measured_in, rewards_of
from speciate.domain.candidate import Evaluation
from speciate.domain.objective import Direction
from speciate.domain.problem import Problem
from speciate.problems.loader import load_problem
from speciate.problems.writing import write
from tests.unit.compat.directories import OPENEVOLVE, SHINKA, made

Import = Callable[..., Problem]
CLOSE = "def run(count):\n    return [0.5 * (i + 1) for i in range(count)]\n"
SHORT = "def run_experiment(seed):\n    return [0, 1, 2, 3, 4, 5]\n"
NOWHERE = "def run_experiment(seed):\n    return [0, 0, 0, 0, 0, 0]\n"


def score(sandbox: SandboxEvaluator, problem: Problem, program: str) -> Evaluation:
    return sandbox.evaluate(problem, [program], seeds=[0])[0]


def named(problem: Problem, evaluation: Evaluation) -> dict[str, float]:
    assert evaluation.failure is None, evaluation.failure
    return dict(zip(problem.space.names, evaluation.rewards or (), strict=True))


@pytest.fixture
def imported(strongest: SandboxEvaluator, tmp_path: Path) -> Import:
    def make(kind: str, files: dict[str, str], minimized: str = "", **changes: str) -> Problem:
        draft = read_directory(kind, made(tmp_path / "theirs", files, **changes))
        trial = draft.trial()
        artifacts = score(strongest, trial, trial.seed_program).artifacts
        draft, measured = after_trial(draft, artifacts), measured_in(artifacts)
        directions = {minimized: Direction.MINIMIZE} if minimized else {}
        write(draft.texts(DraftRewards(rewards_of(draft, directions, measured), measured)), tmp_path / "ours")
        return load_problem(tmp_path / "ours")

    return make


def test_a_cascade_of_openevolve_goes_on_where_its_threshold_is_reached(
    imported: Import, strongest: SandboxEvaluator
) -> None:
    problem = imported("openevolve", OPENEVOLVE)
    assert problem.forgeable
    seed = score(strongest, problem, problem.seed_program)
    assert named(problem, seed) == {"combined_score": 0.4, "runs": 1, "loss": 1.5}
    assert seed.artifacts == {"advice": "mind the slope", "verdict": "far"}
    assert not problem.targets_met(seed.rewards or ())
    best = score(strongest, problem, CLOSE)
    assert named(problem, best) == {"combined_score": 1, "runs": 1, "loss": 0}
    assert problem.targets_met(best.rewards or ()) == 1


def test_what_a_cascade_left_out_stands_at_the_bad_end(imported: Import, strongest: SandboxEvaluator) -> None:
    problem = imported("openevolve", OPENEVOLVE, "loss")
    stopped = score(strongest, problem, "def run(count):\n    return []\n")
    assert named(problem, stopped) == {"combined_score": 0, "loss": 3, "runs": 1}
    assert stopped.artifacts == {"not measured": "loss"}
    failing = "def run(count, asked=[]):\n    asked.append(count)\n    return [1] * count\n" + "_ = open('x')\n"
    failed = score(strongest, problem, failing)
    assert failed.failure is not None
    assert "No such file" in failed.failure.detail


def test_a_later_stage_that_raises_leaves_what_was_measured(imported: Import, strongest: SandboxEvaluator) -> None:
    problem = imported("openevolve", OPENEVOLVE, "loss")
    late = score(strongest, problem, "def run(count):\n    return ['a'] * count\n")
    assert named(problem, late)["loss"] == 3
    assert "TypeError" in late.artifacts["stage 2"]


@pytest.mark.parametrize(
    ("returned", "rewards"),
    [
        ("{'combined_score': numpy.float64(0.5), 'sum-of radii': 2}", {"combined_score": 0.5, "sum_of_radii": 2}),
        ("{'combined_score': True, 'note': '3', 'all': [1, 2]}", {"combined_score": 1}),
        ("{'combined_score': 0.5, 'spread': float('nan')}", {"combined_score": 0.5}),
        ("{'combined_score': 0.5, '2nd': 1}", {"combined_score": 0.5, "_2nd": 1}),
    ],
)
def test_metrics_become_numbers_with_names(
    imported: Import, strongest: SandboxEvaluator, returned: str, rewards: dict[str, float]
) -> None:
    evaluator = f"import numpy\ndef evaluate(program_path):\n    return {returned}\n"
    problem = imported("openevolve", OPENEVOLVE, evaluator_py=evaluator)
    assert named(problem, score(strongest, problem, problem.seed_program)) == rewards


@pytest.mark.parametrize(
    "value",
    [
        "float('nan')",
        "-float('inf')",
        "None",
        "10 ** 400",
        "10 ** 5000",
        "'text'",
        "numpy.zeros(3)",
        "{'a': numpy.nan}",
    ],
)
def test_a_record_that_is_no_finite_number_loses_no_candidate(
    imported: Import, strongest: SandboxEvaluator, value: str
) -> None:
    evaluator = (
        "import numpy\ndef evaluate(path):\n    score = len(open(path).read())\n"
        f"    return {{'combined_score': score, 'ratio': {value} if score < 9 else 0.5}}\n"
    )
    problem = imported("openevolve", OPENEVOLVE, evaluator_py=evaluator)
    found = score(strongest, problem, "x = 1\n")
    assert named(problem, found) == {"combined_score": 6, "ratio": 0}
    assert found.artifacts["not measured"] == "ratio"


@pytest.mark.parametrize("kind", ["openevolve", "skydiscover"])
def test_whole_numbers_beyond_float_are_texts(imported: Import, strongest: SandboxEvaluator, kind: str) -> None:
    evaluator = "def evaluate(path):\n    return {'a': 0.25, 'b': 0.75, 'product': 10 ** 400}\n"
    problem = imported(kind, OPENEVOLVE, evaluator_py=evaluator)
    values = named(problem, score(strongest, problem, problem.seed_program))
    assert values["mean_of_metrics" if kind == "openevolve" else "b"] == (0.5 if kind == "openevolve" else 0.75)


def test_a_sibling_may_import_the_evaluator(imported: Import, strongest: SandboxEvaluator) -> None:
    evaluator = (
        "BASE = 0.25\ndef evaluate(path):\n    import distance\n    return {'combined_score': distance.score()}\n"
    )
    sibling = "import evaluator\ndef score():\n    return evaluator.BASE\n"
    problem = imported("openevolve", OPENEVOLVE, evaluator_py=evaluator, distance_py=sibling)
    assert named(problem, score(strongest, problem, CLOSE)) == {"combined_score": 0.25}


def test_of_two_metrics_with_one_name_none_is_lost(imported: Import, strongest: SandboxEvaluator) -> None:
    evaluator = "def evaluate(path):\n    return {'combined_score': 0.5, 'p<1': 0.9, 'p>1': 0.1}\n"
    problem = imported("openevolve", OPENEVOLVE, evaluator_py=evaluator)
    evaluation = score(strongest, problem, problem.seed_program)
    assert (named(problem, evaluation)["p_1"], evaluation.artifacts["p>1"]) == (0.9, "0.1")


@pytest.mark.parametrize("returned", ["None", "{}", "{'error': 'no'}"])
def test_an_evaluator_that_measures_nothing_fails_the_candidate(
    strongest: SandboxEvaluator, tmp_path: Path, returned: str
) -> None:
    evaluator = f"def evaluate(program_path):\n    return {returned}\n"
    trial = read_directory("openevolve", made(tmp_path / "p", OPENEVOLVE, evaluator_py=evaluator)).trial()
    failed = score(strongest, trial, trial.seed_program)
    assert failed.failure is not None
    assert failed.failure.reason == "evaluator_raised"


def test_a_script_of_shinka_says_what_is_correct(imported: Import, strongest: SandboxEvaluator) -> None:
    problem = imported("shinka", SHINKA, "length")
    seed = score(strongest, problem, problem.seed_program)
    assert named(problem, seed) == {"length": 15, "correct": 1, "combined_score": -15}
    assert seed.artifacts == {"feedback": "walk less", "places": "6 of 6"}  # and nothing private
    short = score(strongest, problem, SHORT)
    assert named(problem, short)["length"] == 5
    assert problem.targets_met(short.rewards or ()) == 1
    wrong = score(strongest, problem, NOWHERE)
    assert (named(problem, wrong)["length"], named(problem, wrong)["correct"]) == (0, 0)
    assert wrong.artifacts["error"] == "not every place is visited once"
    assert not problem.targets_met(wrong.rewards or ())
    raised = score(strongest, problem, "def run_experiment(seed):\n    raise ValueError('lost')\n")
    assert named(problem, raised)["correct"] == 0
    assert raised.artifacts["error"] == "ValueError: lost"


WRITES = """\
import argparse, json, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("--program_path")
parser.add_argument("--results_dir")
given = parser.parse_args()
size = len(open(given.program_path).read())
for name, values in (("metrics", {"combined_score": size}), ("correct", {"correct": True, "error": None})):
    with open(os.path.join(given.results_dir, name + ".json"), "w") as file:
        json.dump(values, file)
sys.exit(0)
"""


def test_a_script_of_shinka_that_writes_for_itself(imported: Import, strongest: SandboxEvaluator) -> None:
    if strongest.tier != "A":
        pytest.skip("tier B lets nothing be written")
    problem = imported("shinka", SHINKA, evaluate_py=WRITES)
    assert named(problem, score(strongest, problem, SHORT))["combined_score"] == len(SHORT)


def test_a_script_of_shinka_that_leaves_nothing_fails_the_candidate(
    strongest: SandboxEvaluator, tmp_path: Path
) -> None:
    trial = read_directory("shinka", made(tmp_path / "p", SHINKA, evaluate_py="raise SystemExit(3)\n")).trial()
    failed = score(strongest, trial, SHORT)
    assert failed.failure is not None
    assert "evaluate.py ended with 3" in failed.failure.detail


@pytest.mark.parametrize("note", ["x = abc", "x = 1e999", "x = nan", "x = 1 = 2", 'x" = 1', "é = 1", "x = 1-2"])
def test_what_an_evaluator_forges_is_no_metric(note: str) -> None:
    assert measured_in({"other metrics": f"{note}\ny = 2.5"}) == {"y": 2.5}
    assert measured_in({}) == {}


def test_without_a_score_the_mean_decides_as_in_openevolve(imported: Import, strongest: SandboxEvaluator) -> None:
    evaluator = (
        "def evaluate(path):\n    size = len(open(path).read())\n"
        "    return {'a': size / 100, 'b': -2.0, 'runs': True, 'diversity': 9.0}\n"
    )
    problem = imported("openevolve", OPENEVOLVE, evaluator_py=evaluator)
    found = named(problem, score(strongest, problem, "x" * 50 + " = 1\n"))
    assert found["mean_of_metrics"] == pytest.approx((0.55 - 2) / 2)
    assert [o.name for o in problem.space.selected] == ["a", "b"]
    assert problem.weights == {"a": 3.3, "b": 4.0}


SKY = {
    "initial_program.py": "def run():\n    return 3\n",
    "config.yaml": "prompt: {system_message: Count.}\nevaluator: {timeout: 20}\n",
    "evaluator/evaluate.sh": "python /benchmark/evaluator.py $1\n",
    "evaluator/table.txt": "2",
    "evaluator/helper.py": "def read():\n    return float(open('table.txt').read())\n",
}
RETURNS = """\
import importlib.util
import helper
def evaluate(path):
    spec = importlib.util.spec_from_file_location("program", path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return {"combined_score": program.run() * helper.read(), "note": "fine"}
if __name__ == "__main__":
    raise SystemExit("a script of the container")
"""
PRINTS = """\
import json, runpy, sys
import helper
if __name__ == "__main__":
    assert len(sys.argv) == 2
    found = runpy.run_path(sys.argv[1])["run"]() * helper.read()
    print("log line")
    print(json.dumps({"status": "success", "combined_score": found, "metrics": {"combined_score": found, "n": 1},
                      "artifacts": {"note": "fine"}}))
"""


@pytest.mark.parametrize("evaluator", [RETURNS, PRINTS])
def test_a_benchmark_of_skydiscover_has_its_evaluator_in_a_folder(
    imported: Import, strongest: SandboxEvaluator, evaluator: str
) -> None:
    problem = imported("skydiscover", {**SKY, "evaluator/evaluator.py": evaluator})
    assert (problem.slug, problem.limits.wall_s, problem.description.strip()) == ("skydiscover-theirs", 20, "Count.")
    seed = score(strongest, problem, problem.seed_program)
    assert (named(problem, seed)["combined_score"], seed.artifacts["note"]) == (6, "fine")
    assert named(problem, score(strongest, problem, "def run():\n    return 4\n"))["combined_score"] == 8


def test_a_script_of_skydiscover_that_prints_no_json_fails(strongest: SandboxEvaluator, tmp_path: Path) -> None:
    files = {**SKY, "evaluator/evaluator.py": "print('lost')\nraise SystemExit(3)\n"}
    trial = read_directory("skydiscover", made(tmp_path / "theirs", files)).trial()
    failed = score(strongest, trial, trial.seed_program)
    assert failed.failure is not None
    assert "SystemExit: 3" in failed.failure.detail


WRITES_SCORES = """\
import argparse, json, os
parser = argparse.ArgumentParser()
parser.add_argument("--output-file", required=True)
parser.add_argument("{option}", dest="program", required=True)
given = parser.parse_args()
path = given.program if os.path.isfile(given.program) else os.path.join(given.program, "initial_program.py")
size = len(open(path).read())
with open(given.output_file, "w") as file:
    json.dump({result}, file)
"""


@pytest.mark.parametrize(
    ("option", "result", "rewards"),
    [
        ("--input-program-file", '{"score": size, "insights": [{"label": "a", "text": "b"}]}', {"score": 21}),
        (
            "--program-dir",
            '{"scores": [{"metric": "x", "score": size}, {"metric": "y", "score": 1}]}',
            {"x": 21, "y": 1},
        ),
    ],
)
def test_an_evaluator_of_alphaevolve_writes_an_output_file(
    imported: Import, strongest: SandboxEvaluator, option: str, result: str, rewards: dict[str, float]
) -> None:
    if strongest.tier != "A":
        pytest.skip("tier B lets nothing be written")
    evaluator = WRITES_SCORES.replace("{option}", option).replace("{result}", result)
    problem = imported("alphaevolve", {"initial_program.py": "def run(): return 1\n", "evaluator.py": evaluator})
    assert [o.directed for o in problem.space.selected] == [f"{name} ↑" for name in rewards]
    found = score(strongest, problem, "def run(): return 22\n")
    assert named(problem, found) == rewards
    assert found.artifacts == ({"a": "b"} if "insights" in result else {})


@pytest.mark.parametrize("result", ['{"score": None, "insights": [{"label": "error", "text": "lost"}]}', '{"lost": 1}'])
def test_an_evaluator_of_alphaevolve_without_a_score_fails_the_candidate(
    strongest: SandboxEvaluator, tmp_path: Path, result: str
) -> None:
    evaluator = WRITES_SCORES.replace("{option}", "--input-program-file").replace("{result}", result)
    files = {"initial_program.py": "x = 1\n", "evaluator.py": evaluator}
    trial = read_directory("alphaevolve", made(tmp_path / "p", files)).trial()
    failed = score(strongest, trial, trial.seed_program)
    assert failed.failure is not None
    assert "lost" in failed.failure.detail or strongest.tier != "A"


def test_a_program_in_another_language_reaches_its_evaluator_with_its_suffix(
    imported: Import, strongest: SandboxEvaluator
) -> None:
    files = {
        "initial_program.rs": "fn main() {}\n",
        "config.yaml": "file_suffix: .rs\n",
        "evaluator.py": (
            "def evaluate(path):\n    return {'combined_score': len(open(path).read()) + path.endswith('.rs')}\n"
        ),
    }
    problem = imported("openevolve", files)
    assert named(problem, score(strongest, problem, "fn f() {}\n")) == {"combined_score": 11}
