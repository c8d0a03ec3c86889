"""Candidates that are not Python: built and run by commands, inside the sandbox."""

import shutil

import pytest

from evaluators.contained.tier_a import NAME as TIER_A
from evaluators.evaluator import SandboxEvaluator
from speciate.domain.candidate import FailureKind
from speciate.domain.errors import EvaluatorUnavailableError

CPP = {"name": "C++", "file": "main.cpp", "build": ["g++", "-O1", "-o", "program", "main.cpp"], "run": ["./program"]}
DOUBLE = '#include <cstdio>\nint main() { long x; return scanf("%ld", &x) == 1 && printf("%ld\\n", 2 * x) ? 0 : 1; }\n'
SHELL = {"name": "sh", "file": "program.sh", "run": ["/bin/sh", "program.sh"]}
PATIENT = {"wall_s": 30, "cpu_s": 30}

needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="there is no g++ on this machine")


@pytest.fixture
def problem(make_problem):
    def make(language=SHELL, **fields):
        cases = [{"input": [str(x)], "expected": str(2 * x)} for x in range(3)]
        return make_problem("cases", **{"cases": cases, "language": language, "limits": PATIENT, **fields})

    return make


@pytest.fixture(autouse=True)
def _tier(sandbox):
    if sandbox.tier != TIER_A:
        pytest.skip("programs that are started need tier A, which does not hold here")


def evaluate(sandbox, problem, program):
    return sandbox.evaluate(problem, [program], seeds=[0])[0]


@needs_compiler
def test_a_compiled_program_answers(sandbox, problem):
    evaluation = evaluate(sandbox, problem(CPP), DOUBLE)
    assert (evaluation.rewards, evaluation.failure) == ((1.0,), None)


@needs_compiler
def test_what_does_not_compile_says_what_the_compiler_said(sandbox, problem):
    failure = evaluate(sandbox, problem(CPP), "int main() { return nothing; }").failure
    assert (failure.kind, failure.reason) == (FailureKind.CRASHED, "build_failed")
    assert "main.cpp:1" in failure.detail


@needs_compiler
def test_a_compiled_program_can_start_no_other(sandbox, problem):
    program = (
        "#include <cstdio>\n#include <unistd.h>\n"
        'int main() { long x; scanf("%ld", &x); printf("%ld\\n", fork() < 0 ? 2 * x : 0); return 0; }\n'
    )
    assert evaluate(sandbox, problem(CPP), program).rewards == (1.0,)


@needs_compiler
def test_a_script_drives_a_compiled_program(sandbox, make_problem):
    script = (
        "def evaluate(candidate, context):\n    return {'score': int(candidate.call('main', '21').unwrap()) / 42}\n"
    )
    made = make_problem("evaluator", evaluator=script, language=CPP, limits=PATIENT)
    assert evaluate(sandbox, made, DOUBLE).rewards == (1.0,)
    assert evaluate(sandbox, made, "nonsense").failure.reason == "build_failed"


def test_building_has_a_limit_of_its_own(sandbox, problem):
    slow = {**SHELL, "build": ["/bin/sleep", "30"], "build_s": 0.4}
    failure = evaluate(sandbox, problem(slow), "read x").failure
    assert failure.kind is FailureKind.TIMEOUT
    assert "0.4 s" in failure.detail


def test_json_goes_in_and_comes_out(sandbox, make_problem):
    language = {**SHELL, "exchange": "json"}
    cases = [{"input": [[1, "a"], {"k": None}], "expected": [[1, "a"], {"k": None}]}]
    made = make_problem("cases", cases=cases, language=language, limits=PATIENT)
    assert evaluate(sandbox, made, 'read -r line; echo "$line"').rewards == (1.0,)
    failure = evaluate(sandbox, made, "echo nonsense").failure
    assert (failure.kind, failure.reason) == (FailureKind.INVALID_OUTPUT, "not_json")


def test_json_without_end_fails_its_case_only(sandbox, make_problem):
    cases = [{"input": [x], "expected": x} for x in (1, 2, 3)]
    problem = make_problem("cases", cases=cases, language={**SHELL, "exchange": "json"}, limits=PATIENT)
    nest = "n='['; for i in 1 2 3 4 5 6 7 8 9 10 11 12 13; do n=$n$n; done"  # 8192 brackets
    evaluation = evaluate(
        sandbox, problem, f"read x\n{nest}\ncase $x in '[2]') echo $n;; *) x=${{x#[}}; echo ${{x%]}};; esac"
    )
    assert evaluation.rewards == (2 / 3,)


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        ("echo oh dear >&2; exit 3", FailureKind.CRASHED, "code 3\noh dear"),
        ("kill -9 $$", FailureKind.CRASHED, "killed by SIGKILL"),
        ("while :; do :; done", FailureKind.TIMEOUT, "wall limit"),
        ("while :; do echo flood; done", FailureKind.INVALID_OUTPUT, "bytes of output"),
        ("kill -XCPU $$", FailureKind.TIMEOUT, "s of processor time"),
        ("trap : XCPU; while :; do :; done", FailureKind.TIMEOUT, "s of processor time"),
    ],
)
def test_how_a_program_ends_is_a_value(sandbox, problem, program, kind, words):
    limits = {"wall_s": 1, "cpu_s": 9} if words == "wall limit" else {**PATIENT, "cpu_s": 1}
    failure = evaluate(sandbox, problem(limits={**limits, "output_bytes": 4096}), program).failure
    assert failure.kind is kind
    assert words in failure.detail


def test_a_program_that_measures_its_time_may_use_all_of_it(sandbox, problem):
    evaluation = evaluate(sandbox, problem(limits={**PATIENT, "cpu_s": 8}), "ulimit -t")
    assert "got 10" in evaluation.artifacts["cases"] or 'got "10"' in evaluation.artifacts["cases"]


def test_a_command_may_set_its_environment(sandbox, problem):
    language = {**SHELL, "run": ["env", "FACTOR=2", *SHELL["run"]]}
    assert evaluate(sandbox, problem(language), "read x; echo $((FACTOR * x))").rewards == (1.0,)


def test_a_program_that_is_no_text_is_a_failure_value(sandbox, problem):
    assert evaluate(sandbox, problem(), "echo '\ud800'").failure.kind is FailureKind.CRASHED


def test_it_is_contained_as_any_other(sandbox, problem):
    program = "read x; cat /etc/passwd && exit; echo $((2 * x)) > /tmp/answer; cat /tmp/answer"
    builtins = "read x; test -e /etc/passwd && exit 1; echo $((2 * x)) > /tmp/answer; read y < /tmp/answer; echo $y"
    assert evaluate(sandbox, problem(), program).rewards is None  # cat would be another process
    assert evaluate(sandbox, problem(), builtins).rewards == (1.0,)


def test_tier_b_refuses_and_names_the_tier_that_can(problem):
    sandbox = SandboxEvaluator("B")
    try:
        with pytest.raises(EvaluatorUnavailableError, match="tier A"):
            evaluate(sandbox, problem(), "read x")
    finally:
        sandbox.close()
