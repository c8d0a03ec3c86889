"""Stages: what is measured when, and what stands for what was not."""

import pytest

from speciate.domain.candidate import FailureKind

STAGES = [{"name": "quick", "objectives": ["small"], "needs": "small >= 1"}, {"name": "full", "objectives": ["large"]}]
OBJECTIVES = ({"name": "small"}, {"name": "large", "direction": "minimize", "range": [0, 10]})
TARGETS = [
    {"name": "some", "rule": "small >= 0", "unlock": False},
    {"name": "all", "rule": "small >= 1 and large <= 10", "unlock": True},
]


@pytest.fixture
def staged(make_problem):
    def make(kind, names=OBJECTIVES, **fields):
        return make_problem(kind, names, **{"stages": STAGES, "targets": TARGETS, **fields})

    return make


@pytest.fixture
def cases(staged):
    def make(**fields):
        hidden = {"hidden": True, "reward": "small"}
        asked = [
            {"input": [1], "expected": 1, "reward": "small"},
            {"input": [777], "expected": 777, **hidden},
            {"input": [1000], "expected": 1000, "reward": "large"},
        ]
        return staged("cases", ("small", "large"), **{"cases": asked, **fields})

    return make


def evaluate(sandbox, problem, program):
    return sandbox.evaluate(problem, [program], seeds=[0])[0]


def test_without_stages_all_is_measured(sandbox, make_problem):
    problem = make_problem("cases", cases=[{"input": [1], "expected": 1}])
    assert evaluate(sandbox, problem, "def solve(x):\n    return x\n").stopped_at is None


def test_who_meets_the_rule_is_measured_to_the_end(sandbox, cases):
    evaluation = evaluate(sandbox, cases(), "def solve(x):\n    return x\n")
    assert (evaluation.rewards, evaluation.stopped_at) == ((1.0, 1.0), None)


def test_who_does_not_stops_there_and_keeps_what_was_measured(sandbox, cases):
    problem = cases()
    evaluation = evaluate(sandbox, problem, "def solve(x):\n    return 1\n")
    assert (evaluation.rewards, evaluation.stopped_at) == ((0.5, 0.0), "full")
    assert evaluation.artifacts["stopped"] == "stage 'quick' needs small >= 1"
    assert problem.targets_met(evaluation.rewards, stopped_at="full") == 1


def test_cases_of_a_stage_that_was_not_reached_are_not_asked(sandbox, cases):
    evaluation = evaluate(sandbox, cases(), "def solve(x):\n    assert x < 1000\n    return 1\n")
    assert "1000" not in evaluation.artifacts.get("cases", "")


def test_who_dies_in_a_later_stage_keeps_the_earlier_rewards(sandbox, cases):
    problem = cases(cases=[{"input": [x], "expected": x, "reward": r} for x, r in ((1, "small"), (1000, "large"))])
    evaluation = evaluate(sandbox, problem, "import os\ndef solve(x):\n    return x if x < 1000 else os._exit(1)\n")
    assert (evaluation.rewards, evaluation.stopped_at, evaluation.failure) == ((1.0, 0.0), "full", None)
    assert "exited with code 1" in evaluation.artifacts["stopped"]


@pytest.mark.parametrize(
    ("end", "told"), [("os._exit(77)", "exited"), ("os.kill(os.getpid(), 35)", "killed_by_signal")]
)
def test_who_dies_after_a_hidden_case_says_nothing_by_it(sandbox, cases, end, told):
    program = f"import os\ndef solve(x):\n    return x if x < 1000 else {end}\n"
    evaluation = evaluate(sandbox, cases(), program)
    assert (evaluation.rewards, evaluation.stopped_at) == ((1.0, 0.0), "full")
    assert evaluation.artifacts["stopped"] == f"stage 'full': crashed: {told}"


def test_who_answers_nothing_in_the_first_stage_fails(sandbox, cases):
    evaluation = evaluate(sandbox, cases(), "def solve(x):\n    raise ValueError\n")
    assert evaluation.failure.kind is FailureKind.CRASHED
    assert evaluation.stopped_at is None


def test_answers_given_after_a_hidden_case_are_never_shown(sandbox, cases):
    program = "seen = []\ndef solve(x):\n    seen.append(x)\n    return x if x < 1000 else seen\n"
    evaluation = evaluate(sandbox, cases(), program)
    assert evaluation.rewards == (1.0, 0.0)
    assert "777" not in str(evaluation.artifacts)


def test_the_deadline_of_a_batch_is_nobodys_stage(sandbox, cases):
    program = "import time\ndef solve(x):\n    if x == 1000: time.sleep(60)\n    return x\n"
    problem = cases(limits={"wall_s": 60})
    (evaluation,) = sandbox.evaluate(problem, [program], seeds=[0], timeout_s=1)
    assert evaluation.failure.reason == "batch_deadline"


SCRIPT = """
def evaluate_quick(candidate, context):
    context.note("quick", "seen")
    return {"small": candidate.call("solve", 1).unwrap()}

def evaluate_full(candidate, context):
    context.note("full", "seen")
    return {"large": candidate.call("solve", 2).unwrap()}
"""


@pytest.mark.parametrize(
    ("returned", "rewards", "stopped_at", "notes"),
    [("1", (1.0, 1.0), None, {"quick", "full"}), ("0", (0.0, 10.0), "full", {"quick"})],
)
def test_a_script_has_a_function_for_each_stage(sandbox, staged, returned, rewards, stopped_at, notes):
    problem = staged("evaluator", evaluator=SCRIPT)
    evaluation = evaluate(sandbox, problem, f"def solve(x):\n    return {returned}\n")
    assert (evaluation.rewards, evaluation.stopped_at) == (rewards, stopped_at)
    assert evaluation.artifacts.keys() - {"stopped"} == notes


def test_a_later_stage_that_raises_keeps_the_earlier_rewards_and_says_why(sandbox, staged):
    problem = staged("evaluator", evaluator=SCRIPT)
    evaluation = evaluate(sandbox, problem, "def solve(x):\n    return 1 if x == 1 else 1 / 0\n")
    assert (evaluation.rewards, evaluation.stopped_at) == ((1.0, 10.0), "full")
    assert "ZeroDivisionError" in evaluation.artifacts["stopped"]


@pytest.mark.parametrize(
    ("kind", "full", "reason"),
    [
        ("evaluator", "nmupy", "evaluator_raised"),
        ("evaluator", "os._exit(3)", "evaluator_exited"),
        ("evaluator", "return {'large': float('nan')}", "invalid_rewards"),
        ("data", "nmupy", "evaluator_raised"),
        ("in_process", "nmupy", "evaluator_raised"),
    ],
)
def test_an_evaluator_that_fails_in_a_later_stage_fails_on_the_seed_program(sandbox, staged, kind, full, reason):
    script = f"import os\ndef quick(*_):\n    return {{'small': 1}}\ndef full(*_):\n    {full}\n"
    stages = [{**stage, "function": stage["name"]} for stage in STAGES]
    problem = staged(kind, evaluator=script, stages=stages, seed_program="x = 1\n")
    seed, other = sandbox.evaluate(problem, [problem.seed_program, "x = 2\n"], seeds=[0, 0])
    assert seed.failure.reason == reason
    assert (other.rewards, other.stopped_at) == ((1.0, 10.0), "full")


def test_a_stage_returns_its_own_rewards_and_no_others(sandbox, staged):
    problem = staged("evaluator", evaluator=SCRIPT.replace('{"small": ', '{"large": 1, "small": '))
    evaluation = evaluate(sandbox, problem, "def solve(x):\n    return 1\n")
    assert evaluation.failure.reason == "invalid_rewards"
    assert "unknown large" in evaluation.failure.detail


def test_texts_have_stages_too(sandbox, staged):
    script = (
        "def first(text, context):\n    return {'small': len(text)}\n"
        "def score_full(text, context):\n    return {'large': 3}\n"
    )
    stages = [{**STAGES[0], "function": "first", "needs": "small >= 2"}, STAGES[1]]
    problem = staged("data", evaluator=script, stages=stages)
    short, long = sandbox.evaluate(problem, ["a", "aa"], seeds=[0, 0])
    assert (short.rewards, short.stopped_at) == ((1.0, 10.0), "full")
    assert (long.rewards, long.stopped_at) == ((2.0, 3.0), None)


@pytest.mark.parametrize(
    ("stages", "message"),
    [
        ([STAGES[0], {**STAGES[1], "name": "quick"}], "'quick' is declared twice"),
        ([STAGES[0], {**STAGES[1], "objectives": ["wide"]}], "'wide', which is not an objective"),
        ([STAGES[0], {**STAGES[1], "objectives": ["large", "small"]}], "measures 'small' again"),
        ([STAGES[0]], "no stage measures 'large'"),
        ([{**STAGES[0], "needs": "large <= 1"}, STAGES[1]], "needs 'large', which no earlier stage measures"),
        ([STAGES[1], STAGES[0]], "declare its range"),
    ],
)
def test_stages_that_do_not_fit_are_refused(staged, stages, message):
    with pytest.raises(ValueError, match=message):
        staged("evaluator", evaluator=SCRIPT, stages=stages)
