import tracemalloc

import pytest

from speciate.domain.candidate import FailureKind

DOUBLE = "def solve(x):\n    return 2 * x\n"
CASES = [{"input": [i], "expected": 2 * i} for i in range(10)]


@pytest.fixture
def doubling(make_problem):
    return make_problem("cases", cases=CASES, limits={"wall_s": 5})


def one(sandbox, problem, program, seed=0):
    (evaluation,) = sandbox.evaluate(problem, [program], seeds=[seed])
    return evaluation


def test_a_right_program_gets_every_case(sandbox, doubling):
    evaluation = one(sandbox, doubling, DOUBLE)
    assert evaluation.rewards == (1.0,)
    assert evaluation.tier == sandbox.tier
    assert evaluation.wall_s > 0
    assert 0 < evaluation.cpu_s < 5
    assert evaluation.memory_bytes > 1 << 20
    assert evaluation.artifacts == {}


def test_each_objective_is_the_share_of_its_cases(sandbox, make_problem):
    problem = make_problem(
        "cases",
        names=("score", "large", {"name": "unused", "role": "record"}),
        cases=[
            {"input": [1], "expected": 2},
            {"input": [2], "expected": 5},
            {"input": [3], "expected": 6},
            {"input": [100], "expected": 200, "reward": "large"},
        ],
    )
    assert one(sandbox, problem, DOUBLE).rewards == (2 / 3, 1.0, 0.0)


def test_answers_before_a_timeout_count_and_the_rest_fail(sandbox, make_problem):
    problem = make_problem("cases", cases=CASES, limits={"wall_s": 0.5})
    program = "def solve(x):\n    while x >= 6: pass\n    return 2 * x\n"
    evaluation = one(sandbox, problem, program)
    assert evaluation.rewards == (0.6,)
    assert evaluation.artifacts["stopped"].endswith("(6 of 10 cases answered)")
    assert evaluation.artifacts["stopped"].startswith("timeout")


def test_answers_before_a_crash_count(sandbox, doubling):
    program = "import os\ndef solve(x):\n    if x == 3: os.kill(os.getpid(), 9)\n    return 2 * x\n"
    assert one(sandbox, doubling, program).rewards == (0.3,)


def test_an_exception_fails_its_case_only(sandbox, doubling):
    evaluation = one(sandbox, doubling, "def solve(x):\n    return 2 * x // (x - 3) * (x - 3) if x == 3 else 2 * x\n")
    assert evaluation.rewards == (0.9,)
    assert "ZeroDivisionError" in evaluation.artifacts["cases"]


@pytest.mark.parametrize(
    ("program", "kind", "reason", "words"),
    [
        ("def solve(x:\n", FailureKind.CRASHED, "syntax_error", "SyntaxError"),
        ("raise ValueError('\ud800')", FailureKind.CRASHED, "raised", ""),
        ("raise ValueError('at load')", FailureKind.CRASHED, "raised", "at load"),
        ("import sys\nsys.exit('bye')", FailureKind.CRASHED, "raised", "bye"),
        ("def other(x): return x", FailureKind.INVALID_OUTPUT, "no_entry_point", "solve"),
        ("solve = 3", FailureKind.INVALID_OUTPUT, "no_entry_point", "solve"),
        ("def solve(x):\n    return {1, 2}", FailureKind.INVALID_OUTPUT, "not_json", "set"),
        ("def solve(x):\n    return float('nan')", FailureKind.INVALID_OUTPUT, "not_json", "float"),
        ("def solve(x):\n    return float('inf')", FailureKind.INVALID_OUTPUT, "not_json", "float"),
        ("def solve(x):\n    a = []\n    a.append(a)\n    return a", FailureKind.INVALID_OUTPUT, "not_json", ""),
        ("def solve(x):\n    return 'x' * 2000000", FailureKind.INVALID_OUTPUT, "too_long", "at most"),
        ("def solve(x):\n    return bytearray(4 << 30)", FailureKind.OUT_OF_MEMORY, "out_of_memory", "MemoryError"),
        ("def solve(x):\n    return solve(x)", FailureKind.CRASHED, "raised", "RecursionError"),
        ("def solve(x):\n    1 / 0", FailureKind.CRASHED, "raised", "    1 / 0"),
        ("", FailureKind.INVALID_OUTPUT, "no_entry_point", "solve"),
    ],
)
def test_a_program_that_answers_nothing_is_a_failure_value(sandbox, doubling, program, kind, reason, words):
    evaluation = one(sandbox, doubling, program)
    assert evaluation.failure is not None, evaluation
    assert (evaluation.failure.kind, evaluation.failure.reason) == (kind, reason)
    assert words in evaluation.failure.detail


def test_a_program_with_null_bytes_is_refused_like_any_other(sandbox, doubling):
    assert one(sandbox, doubling, "def solve(x):\n    return x\0").failure.kind is FailureKind.CRASHED


def test_processor_time_is_limited(sandbox, make_problem):
    problem = make_problem("cases", cases=CASES, limits={"wall_s": 60, "cpu_s": 1})
    evaluation = one(sandbox, problem, "def solve(x):\n    while True: pass\n")
    assert (evaluation.failure.kind, evaluation.failure.reason) == (FailureKind.TIMEOUT, "cpu_limit")
    assert evaluation.cpu_s > 0.8


def test_numpy_values_are_read_as_plain_numbers(sandbox, doubling):
    assert one(sandbox, doubling, "import numpy as np\ndef solve(x):\n    return np.int64(2 * x)\n").rewards == (1.0,)
    evaluation = one(sandbox, doubling, "import numpy as np\ndef solve(x):\n    return np.arange(x)\n")
    assert "input [3] expected 6 got [0, 1, 2]" in evaluation.artifacts["cases"]


def test_the_same_seed_gives_the_same_result(sandbox, make_problem):
    problem = make_problem("cases", cases=[{"input": [], "expected": []}])
    program = (
        "import random\nimport numpy\n"
        "def solve():\n    return [random.random(), numpy.random.rand(), list({'a', 'b', 'c', 'd'}), hash('x')]\n"
    )
    shown = [e.artifacts["cases"] for e in sandbox.evaluate(problem, [program] * 3, seeds=[1, 1, 2])]
    assert shown[0] == shown[1]
    assert shown[0] != shown[2]


def test_failing_visible_cases_and_the_log_are_shown(sandbox, doubling):
    program = "import sys\nprint('hello')\nprint('trouble', file=sys.stderr)\ndef solve(x):\n    return x\n"
    artifacts = one(sandbox, doubling, program).artifacts
    assert artifacts["cases"].splitlines()[0] == "input [1] expected 2 got 1"
    assert len(artifacts["cases"].splitlines()) == 5
    assert artifacts["stdout"] == "hello\n"
    assert artifacts["stderr"] == "trouble\n"


def test_nothing_of_hidden_cases_is_shown(sandbox, make_problem):
    hidden = {"input": [424242], "expected": 848484, "hidden": True}
    problem = make_problem("cases", cases=[hidden, {"input": [1], "expected": 2}])
    program = (
        "seen = []\ndef solve(x):\n    seen.append(x)\n    print(seen, flush=True)\n    raise ValueError(str(seen))\n"
    )
    evaluation = one(sandbox, problem, program)
    assert evaluation.failure is not None
    assert "[1]" in evaluation.failure.detail
    # Not a part of it: four digits also occur in a measured time.
    assert "424242" not in repr(evaluation)
    assert "848484" not in repr(evaluation)
    alone = one(sandbox, make_problem("cases", cases=[hidden]), program)
    assert alone.failure is not None
    assert alone.failure.detail == ""
    assert "424242" not in repr(alone)


ENCODING = {
    "the length of a frame": ("os.write(3, (0x80000000 | x).to_bytes(4, 'big'))", "malformed_frame"),
    "where JSON is broken": ("os.write(3, (x + 1).to_bytes(4, 'big') + b' ' * x + b'{')", "malformed_frame"),
    "an exit code": ("os._exit(x)", "exited"),
    "the number of a signal": ("os.kill(os.getpid(), x % 64)", "killed_by_signal"),
}


@pytest.mark.parametrize(("end", "reason"), ENCODING.values(), ids=ENCODING)
@pytest.mark.parametrize("visible", [[], [{"input": [0], "expected": 0}]], ids=["alone", "after a visible case"])
def test_no_end_of_a_process_spells_out_a_hidden_input(sandbox, make_problem, visible, end, reason):
    program = f"import os, time\ndef solve(x):\n    if x == 0: return 0\n    {end}\n    time.sleep(30)\n"
    hidden = [[{"input": [x], "expected": 0, "hidden": True} for x in pair] for pair in ((101, 102), (103, 104))]
    told = []
    for cases in hidden:
        evaluation = one(sandbox, make_problem("cases", cases=visible + cases, limits={"wall_s": 20}), program)
        told.append((evaluation.rewards, evaluation.failure, evaluation.artifacts))
    assert told[0] == told[1]
    assert told[0][2]["stopped"].endswith(f": {reason}")


def test_visible_answers_cannot_quote_hidden_inputs(sandbox, make_problem):
    cases = [{"input": [5151], "expected": 0, "hidden": True}, {"input": [1], "expected": 2}]
    program = "seen = []\ndef solve(x):\n    seen.append(x)\n    return seen\n"
    evaluation = one(sandbox, make_problem("cases", cases=cases), program)
    assert evaluation.rewards == (0.0,)
    assert evaluation.artifacts == {"cases": "input [1] expected 2 got [1]"}


def test_tolerance_is_the_cases_own(sandbox, make_problem):
    cases = [{"input": [], "expected": 0.5, "tolerance": 0.1}, {"input": [], "expected": 0.5}]
    assert one(sandbox, make_problem("cases", cases=cases), "def solve():\n    return 0.501\n").rewards == (0.5,)


def test_dataclasses_and_main_guards_work(sandbox, doubling):
    program = (
        "from __future__ import annotations\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass Box:\n    x: int\n"
        "def solve(x):\n    return Box(x).x * 2\n"
        "if __name__ == '__main__':\n    raise SystemExit\n"
    )
    assert one(sandbox, doubling, program).rewards == (1.0,)


def test_large_inputs_and_answers_pass_while_both_sides_write(sandbox, make_problem):
    text = "x" * 300_000
    cases = [{"input": [text], "expected": text} for _ in range(12)]
    program = "import sys\ndef solve(x):\n    print(x, file=sys.stderr)\n    return x\n"
    evaluation = one(sandbox, make_problem("cases", cases=cases, limits={"wall_s": 20}), program)
    assert evaluation.rewards == (1.0,)
    assert len(evaluation.artifacts["stderr"]) == 64 << 10


def test_answers_are_judged_and_not_kept(sandbox, make_problem):
    cases = [{"input": [], "expected": 0, "hidden": hidden} for hidden in (False, True) for _ in range(8)]
    problem = make_problem("cases", cases=cases, limits={"wall_s": 20})
    tracemalloc.start()
    try:
        evaluation = one(sandbox, problem, "def solve():\n    return [{}] * 50_000\n")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert evaluation.rewards == (0.0,)
    one_answer = 50_000 * len("{},") * 25  # an empty object of three bytes is one of some 70 in memory
    assert peak < 4 * one_answer


def test_the_failed_cases_that_are_shown_are_the_first_in_whatever_order_they_are_answered(sandbox, doubling):
    program = (
        "import json, os, time\nframes = b''\n"
        "def question():\n"
        "    size, body = int.from_bytes(os.read(3, 4), 'big'), b''\n"
        "    while len(body) < size: body += os.read(3, size - len(body))\n"
        "    return json.loads(body)['index']\n"
        "for i in reversed([question() for _ in range(10)]):\n"
        "    body = json.dumps({'index': i, 'value': 77}).encode()\n"
        "    frames += len(body).to_bytes(4, 'big') + body\n"
        "os.write(3, frames)\ntime.sleep(30)\n"
    )
    shown = one(sandbox, doubling, program).artifacts["cases"].splitlines()
    assert [line.split()[1] for line in shown] == [f"[{i}]" for i in range(5)]
