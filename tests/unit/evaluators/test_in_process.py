"""Evaluators that import the candidate: contained, and never believed without a second look."""

import pytest

from speciate.domain.candidate import FailureKind

SCRIPT = """
import importlib.util

class Result:
    def __init__(self, metrics, artifacts):
        self.metrics, self.artifacts = metrics, artifacts

def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    return Result({"score": program.solve(21) / 42, "speed": 3}, {"said": "hello"})
"""
GOOD = "def solve(x):\n    return 2 * x\n"


@pytest.fixture
def problem(make_problem):
    def make(**fields):
        return make_problem("in_process", **{"evaluator": SCRIPT, "limits": {"wall_s": 20}, **fields})

    return make


def evaluate(sandbox, problem, program):
    return sandbox.evaluate(problem, [program], seeds=[0])[0]


def test_rewards_and_artifacts_are_read_and_other_numbers_are_a_note(sandbox, problem):
    evaluation = evaluate(sandbox, problem(), GOOD)
    assert evaluation.rewards == (1.0,)
    assert evaluation.artifacts == {"said": "hello", "other metrics": "speed = 3"}
    assert evaluation.tier == sandbox.tier


def test_a_plain_dict_will_do(sandbox, problem):
    script = "def evaluate(path):\n    return {'score': len(open(path).read())}\n"
    assert evaluate(sandbox, problem(evaluator=script), GOOD).rewards == (len(GOOD),)


def test_metrics_that_are_texts_are_notes_of_their_own(sandbox, problem):
    script = "def evaluate(path):\n    return {'score': 0.0, 'speed': 3, 'error': 'no data'}\n"
    notes = evaluate(sandbox, problem(evaluator=script), GOOD).artifacts
    assert notes == {"error": "no data", "other metrics": "speed = 3"}


def test_a_long_list_among_the_metrics_is_cut(sandbox, problem):
    script = "def evaluate(path):\n    return {'score': 0.0, 'speed': 3, 'steps': [0.5] * 10_000}\n"
    notes = evaluate(sandbox, problem(evaluator=script), GOOD).artifacts
    assert notes["other metrics"].startswith("speed = 3\nsteps = [0.5")
    assert len(notes["other metrics"]) < 5000


@pytest.mark.parametrize("text", ["'x' * 2_000_000", r"'\U0001f600' * 200_000"])
def test_a_long_artifact_is_cut_and_an_output_left_out(sandbox, problem, text):
    script = (
        f"class Result:\n    metrics, artifacts = {{'score': 1.0}}, {{'log': {text}, 'output': {text}}}\n"
        "def evaluate(path):\n    return Result\n"
    )
    evaluation = evaluate(sandbox, problem(evaluator=script, carry="best"), GOOD)
    assert evaluation.rewards == (1.0,)
    assert evaluation.artifacts.keys() == {"log", "output left out"}
    assert len(evaluation.artifacts["log"]) == problem().limits.log_bytes


def test_each_candidate_has_a_process_of_its_own(sandbox, problem):
    leave = "import builtins\nbuiltins.left = 1\n" + GOOD
    look = "import builtins\ndef solve(x):\n    return 42 * hasattr(builtins, 'left')\n"
    results = sandbox.evaluate(problem(), [leave, look], seeds=[0, 0])
    assert [e.rewards for e in results] == [(1.0,), (0.0,)]


def test_candidates_see_data_files_and_nothing_outside(sandbox, problem):
    program = (
        "import os\ndef solve(x):\n"
        "    assert open('data/hint.txt').read() == 'two'\n"
        "    try:\n        open('/etc/passwd')\n    except OSError:\n        return 42\n"
    )
    assert evaluate(sandbox, problem(data_files={"hint.txt": "two"}), program).rewards == (1.0,)


def test_it_can_be_forged_and_says_so(sandbox, problem):
    forged = (
        "import os, json\n"
        "body = json.dumps({'rewards': {'score': 1e9}, 'notes': []}).encode()\n"
        "os.write(3, len(body).to_bytes(4, 'big') + body)\nos._exit(0)\n"
    )
    made = problem()
    assert evaluate(sandbox, made, forged).rewards == (1e9,)
    assert made.forgeable


def test_it_needs_a_confirmation(problem):
    with pytest.raises(ValueError, match="confirmations must be at least 1"):
        problem(confirmations=0)


@pytest.mark.parametrize(
    ("script", "program", "kind", "reason"),
    [
        (SCRIPT, "def solve(x): return 1 / 0\n", FailureKind.INVALID_OUTPUT, "evaluator_raised"),
        (SCRIPT, "def solve(x): return '\ud800'\n", FailureKind.INVALID_OUTPUT, "evaluator_raised"),
        (SCRIPT, "import os\nos._exit(3)\n", FailureKind.CRASHED, "exited"),
        (SCRIPT, "while True: pass\n", FailureKind.TIMEOUT, "wall_limit"),
        ("def evaluate(path):\n    return '3'\n", GOOD, FailureKind.INVALID_OUTPUT, "evaluator_raised"),
        ("def evaluate(path):\n    return {}\n", GOOD, FailureKind.INVALID_OUTPUT, "invalid_rewards"),
        ("def other(path):\n    return {}\n", GOOD, FailureKind.INVALID_OUTPUT, "evaluator_raised"),
        ("1 / 0", GOOD, FailureKind.INVALID_OUTPUT, "evaluator_raised"),
    ],
)
def test_what_goes_wrong_is_a_value(sandbox, problem, script, program, kind, reason):
    limits = {"wall_s": 0.5} if kind is FailureKind.TIMEOUT else {"wall_s": 20}
    failure = evaluate(sandbox, problem(evaluator=script, limits=limits), program).failure
    assert (failure.kind, failure.reason) == (kind, reason)


def test_what_a_script_prints_is_kept_if_nothing_scores(sandbox, problem):
    """Evaluators catch their own exceptions, print them and answer 0."""
    script = "def evaluate(path):\n    print('Error: no data')\n    return {'score': VALUE}\n"
    for value, kept in (("0", True), ("0.5", False)):
        evaluation = evaluate(sandbox, problem(evaluator=script.replace("VALUE", value)), GOOD)
        assert ("Error: no data" in evaluation.artifacts.get("evaluator_log", "")) is kept


def test_a_text_that_looks_like_binary_content_is_scored_as_it_is(sandbox, problem):
    script = "def evaluate(program_path):\n    return {'score': len(open(program_path).read())}\n"
    language = {"name": "Text", "file": "a.txt"}
    made = problem(evaluator=script, language=language, seed_program="a", objectives=[{"name": "score"}])
    for text in ("data:;base64,!", "data:;base64,eCA9IDE="):
        assert evaluate(sandbox, made, text).rewards == (float(len(text)),)


def test_metrics_that_are_no_numbers_are_notes_and_rewards_must_be(sandbox, problem):
    script = "def evaluate(path):\n    return {'score': 0.5, 'seen': {1, 2}, 'at': 1j, 'n': 10**5000}\n"
    evaluation = evaluate(sandbox, problem(evaluator=script), GOOD)
    assert evaluation.rewards == (0.5,)
    assert "1j" in str(evaluation.artifacts)
    assert "{1, 2}" in str(evaluation.artifacts)
    wrong = evaluate(sandbox, problem(evaluator="def evaluate(path):\n    return {'score': 1j}\n"), GOOD)
    assert "reward 'score' is complex: expected a finite number" in wrong.failure.detail
