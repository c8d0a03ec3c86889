import errno
from contextlib import closing

import pytest

from evaluators.evaluator import SandboxEvaluator
from evaluators.script import read_outcome
from evaluators.tiers.supervisor import Supervisor
from speciate.domain.candidate import NOT_THE_PROGRAMS_FAULT, Evaluation, Failure, FailureKind
from speciate.ports.work import CarriedOutput
from speciate.prompts.failures import cause_of
from speciate.runs.evaluation import with_output
from speciate.runs.silent_failure import silent_failure

LIKE_BINARY = "data:;base64,no"
DOUBLE = "def solve(x):\n    return 2 * x\n"


@pytest.fixture
def scripted(make_problem):
    def make(body, wall_s=5.0, **fields):
        script = "def evaluate(candidate, context):\n" + "".join(f"    {line}\n" for line in body.splitlines())
        return make_problem("evaluator", evaluator=script, limits={"wall_s": wall_s}, **fields)

    return make


def one(sandbox, problem, program=DOUBLE, seed=0):
    (evaluation,) = sandbox.evaluate(problem, [program], seeds=[seed])
    return evaluation


def test_the_script_calls_the_candidate_and_returns_every_reward(sandbox, scripted):
    problem = scripted(
        "right = sum(candidate.call('solve', i).unwrap() == 2 * i for i in range(4))\n"
        "context.note('remark', f'{right} of 4')\n"
        "return {'size': len(candidate.source), 'score': right / 4}",
        names=("score", "size"),
    )
    evaluation = one(sandbox, problem)
    assert evaluation.rewards == (1.0, float(len(DOUBLE)))
    assert evaluation.artifacts == {"remark": "4 of 4"}
    assert evaluation.wall_s > 0
    assert evaluation.cpu_s > 0
    assert evaluation.memory_bytes > 1 << 20


def test_one_process_of_the_script_serves_the_batch_and_each_candidate_has_its_own(sandbox, make_problem):
    script = (
        "served = []\n"
        "def evaluate(candidate, context):\n"
        "    served.append(1)\n"
        "    return {'score': len(served) * 10 + candidate.call('count').unwrap()}\n"
    )
    program = "seen = []\ndef count():\n    seen.append(1)\n    return len(seen)\n"
    problem = make_problem("evaluator", evaluator=script)
    assert [e.rewards for e in sandbox.evaluate(problem, [program] * 3, seeds=[0] * 3)] == [(11.0,), (21.0,), (31.0,)]


def test_a_candidate_cannot_draw_what_its_evaluator_draws(sandbox, make_problem):
    script = (
        "import random\n"
        "def evaluate(candidate, context):\n"
        "    theirs = candidate.call('draw', context.seed).unwrap()\n"
        "    context.note('drawn', theirs)\n"
        "    return {'score': float(random.random() in theirs)}\n"
    )
    program = "import random\ndef draw(_):\n    return [random.random() for _ in range(100)]\n"
    problem = make_problem("evaluator", evaluator=script)
    first, again, other = sandbox.evaluate(problem, [program] * 3, seeds=[7, 7, 8])
    assert (first.rewards, other.rewards) == ((0.0,), (0.0,))
    # It still answers the same for the same seed, and something else for another one.
    assert first.artifacts["drawn"] == again.artifacts["drawn"] != other.artifacts["drawn"]


def test_the_script_sees_seed_and_files_and_seeded_generators(sandbox, scripted):
    problem = scripted(
        "import random\n"
        "context.note('facts', [context.seed, context.files['table.txt'], random.random()])\n"
        "return {'score': 1}",
        files={"table.txt": "1 2 3"},
    )
    shown = [e.artifacts["facts"] for e in sandbox.evaluate(problem, [DOUBLE] * 3, seeds=[7, 7, 8])]
    assert shown[0] == shown[1]
    assert shown[0].startswith("[7, '1 2 3', 0.")
    assert shown[2] != shown[0]


def test_a_failed_call_is_a_value(sandbox, scripted):
    problem = scripted(
        "reply = candidate.call('solve', None)\n"
        "context.note('reply', f'{reply.failure.kind} {reply.failure.reason} {reply.value}')\n"
        "return {'score': candidate.call('solve', 4).unwrap()}"
    )
    evaluation = one(sandbox, problem)
    assert evaluation.rewards == (8.0,)
    assert evaluation.artifacts["reply"] == "crashed raised None"


def test_unwrap_ends_the_evaluation_with_the_candidates_failure(sandbox, scripted):
    problem = scripted(
        "try:\n    candidate.call('solve').unwrap()\nexcept Exception:\n    return {'score': 1}\nreturn {'score': 2}"
    )
    for program, kind, reason in [
        (DOUBLE, FailureKind.CRASHED, "raised"),
        ("def solve(:", FailureKind.CRASHED, "syntax_error"),
        ("x = 1", FailureKind.INVALID_OUTPUT, "no_entry_point"),
        ("import os\ndef solve(): os._exit(0)", FailureKind.CRASHED, "exited"),
        ("def solve(): return b''", FailureKind.INVALID_OUTPUT, "not_json"),
        ("def solve(): return [0] * (1 << 40)", FailureKind.OUT_OF_MEMORY, "out_of_memory"),
    ]:
        failure = one(sandbox, problem, program).failure
        assert failure is not None
        assert (failure.kind, failure.reason) == (kind, reason)


def test_a_call_that_times_out_costs_the_process_and_the_next_meets_a_fresh_one(sandbox, scripted):
    problem = scripted(
        "first = candidate.call('solve', 1).unwrap()\n"
        "slow = candidate.call('loop', timeout_s=1.0)\n"
        "context.note('slow', slow.failure.kind)\n"
        "return {'score': first * 10 + candidate.call('solve', 1).unwrap()}"
    )
    program = "seen = []\ndef solve(x):\n    seen.append(x)\n    return len(seen)\ndef loop():\n    while True: pass\n"
    evaluation = one(sandbox, problem, program)
    assert evaluation.rewards == (11.0,)
    assert evaluation.artifacts["slow"] == "timeout"
    assert evaluation.cpu_s > 0.1


def test_the_wall_limit_counts_over_all_calls(sandbox, scripted):
    problem = scripted(
        "failures = [candidate.call('nap').failure for _ in range(20)]\n"
        "context.note('given', sum(f is None for f in failures))\n"
        "context.note('kind', failures[-1].kind)\n"
        "return {'score': 0}",
        wall_s=0.6,
    )
    evaluation = one(sandbox, problem, "import time\ndef nap():\n    time.sleep(0.2)\n")
    assert evaluation.rewards == (0.0,)
    assert int(evaluation.artifacts["given"]) <= 3
    assert evaluation.artifacts["kind"] == "timeout"


def test_a_candidate_that_dies_at_every_call_is_given_up(sandbox, scripted):
    problem = scripted(
        "reasons = {candidate.call('solve').failure.reason for _ in range(200)}\n"
        "context.note('reasons', sorted(reasons))\n"
        "return {'score': 0}"
    )
    evaluation = one(sandbox, problem, "import os\ndef solve(): os._exit(3)\n")
    assert evaluation.artifacts["reasons"] == "['exited']"


def test_a_failing_call_that_the_script_hides_is_kept_if_nothing_scores(sandbox, scripted):
    problem = scripted("return {'score': int(candidate.call('solve').failure is None)}")
    hidden = one(sandbox, problem, "import fancygraphs\n").artifacts
    assert "No module named 'fancygraphs'" in hidden["failed call"]
    found = silent_failure(problem, Evaluation(rewards=(0.0,), artifacts=hidden))
    assert found is not None
    assert "Add the package of fancygraphs" in found.remedy
    assert "failed call" not in one(sandbox, problem, "def solve(): return 1\n").artifacts


def test_an_evaluator_that_raises_after_a_failed_call_names_the_exception_of_the_program(sandbox, scripted):
    problem = scripted("a, b = candidate.call('solve', 1).value\nreturn {'score': a}")
    program = "def solve(x):\n    raise ValueError('odd')\n"
    failure = one(sandbox, problem, program).failure
    cause = cause_of(failure, problem, program)
    assert (failure.reason, cause.where) == ("evaluator_raised", "line 2")
    assert cause.message == "ValueError: odd\nThe evaluator raised TypeError after the call solve failed."


def test_what_the_candidate_prints_is_kept(sandbox, scripted):
    problem = scripted("candidate.call('solve', 1)\nprint('secret of the author')\nreturn {'score': 0}")
    evaluation = one(sandbox, problem, "print('loaded')\ndef solve(x): return x")
    assert evaluation.artifacts == {"stdout": "loaded\n"}


@pytest.mark.parametrize(
    ("body", "kind", "reason", "words"),
    [
        ("raise KeyError('here')", FailureKind.INVALID_OUTPUT, "evaluator_raised", "KeyError: 'here'"),
        ("raise ValueError(10 ** 5000)", FailureKind.INVALID_OUTPUT, "evaluator_raised", "ValueError"),
        ("raise SystemExit(3)", FailureKind.INVALID_OUTPUT, "evaluator_raised", "SystemExit"),
        ("return {'score': float('nan')}", FailureKind.INVALID_OUTPUT, "invalid_rewards", "'score' is nan"),
        ("return {'score': float('-inf')}", FailureKind.INVALID_OUTPUT, "invalid_rewards", "'score' is -inf"),
        ("return {'score': True}", FailureKind.INVALID_OUTPUT, "invalid_rewards", "bool"),
        ("return {'score': 10 ** 400}", FailureKind.INVALID_OUTPUT, "invalid_rewards", "whole number beyond"),
        ("return {'score': '1'}", FailureKind.INVALID_OUTPUT, "invalid_rewards", "str"),
        ("return {'scores': 1}", FailureKind.INVALID_OUTPUT, "invalid_rewards", "missing score; unknown scores"),
        ("return {}", FailureKind.INVALID_OUTPUT, "invalid_rewards", "missing score"),
        ("return [1.0]", FailureKind.INVALID_OUTPUT, "evaluator_raised", "returned list"),
        ("return {'score': object()}", FailureKind.INVALID_OUTPUT, "evaluator_raised", "'score' is object"),
        ("return {'score': 10 ** 5000}", FailureKind.INVALID_OUTPUT, "evaluator_raised", "'score' is int"),
        ("import numpy; return {'score': numpy.ones(2)}", FailureKind.INVALID_OUTPUT, "invalid_rewards", "list"),
        (
            "import numpy; return {'score': numpy.float32('inf')}",
            FailureKind.INVALID_OUTPUT,
            "invalid_rewards",
            "is inf",
        ),
        ("candidate.call(len)", FailureKind.INVALID_OUTPUT, "evaluator_raised", "expected the name of a function"),
        ("candidate.call('solve', timeout_s='soon')", FailureKind.INVALID_OUTPUT, "evaluator_raised", "'soon'"),
        ("return {'score': 'x' * 70000000}", FailureKind.INVALID_OUTPUT, "evaluator_raised", "cannot be sent"),
        ("candidate.call('solve', object())", FailureKind.INVALID_OUTPUT, "evaluator_raised", "not JSON"),
        ("context.invalid('overlap')", FailureKind.INVALID_OUTPUT, "refused_by_evaluator", "overlap"),
        ("return {'score': len(bytearray(8 << 30))}", FailureKind.OUT_OF_MEMORY, "evaluator_raised", "MemoryError"),
        ("while True: pass", FailureKind.TIMEOUT, "evaluator_wall_limit", "the wall limit of 1.5 s"),
        ("import os; os._exit(0)", FailureKind.CRASHED, "evaluator_exited", "code 0"),
        ("import os; os.write(3, b'garbage!')", FailureKind.INVALID_OUTPUT, "evaluator_malformed_frame", "at most"),
    ],
)
def test_a_bad_script_is_a_failure_value_and_the_batch_goes_on(sandbox, scripted, body, kind, reason, words):
    script = "print('author log')\nif 'good' not in candidate.source:\n    " + body + "\nreturn {'score': 1}"
    problem = scripted(script, wall_s=0.5 if kind is FailureKind.TIMEOUT else 20)
    bad, good = sandbox.evaluate(problem, [DOUBLE, DOUBLE + "# good\n"], seeds=[0, 0])
    assert bad.failure is not None
    assert (bad.failure.kind, bad.failure.reason) == (kind, reason)
    assert words in bad.failure.detail
    assert bad.artifacts["evaluator_log"] == "author log\n"
    assert good.rewards == (1.0,)


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ("def evaluate(:", FailureKind.INVALID_OUTPUT, "SyntaxError"),
        ("import nothing_like_this", FailureKind.INVALID_OUTPUT, "nothing_like_this"),
        ("def evalute(candidate, context): ...", FailureKind.INVALID_OUTPUT, "defines no function 'evaluate'"),
        ("while True: pass", FailureKind.TIMEOUT, "the wall limit of 1.5 s"),
    ],
)
def test_a_script_that_cannot_be_loaded_fails_every_program(sandbox, make_problem, script, kind, words):
    problem = make_problem("evaluator", evaluator=script, limits={"wall_s": 0.5 if kind is FailureKind.TIMEOUT else 20})
    for evaluation in sandbox.evaluate(problem, [DOUBLE] * 3, seeds=[0] * 3):
        assert evaluation.failure is not None
        assert evaluation.failure.kind is kind
        assert words in evaluation.failure.detail


def test_a_number_of_numpy_is_a_number(sandbox, scripted):
    assert one(sandbox, scripted("import numpy\nreturn numpy.sum([True, True])")).rewards == (2.0,)


def test_notes_are_bounded(sandbox, scripted):
    problem = scripted("for i in range(100):\n    context.note(f'n{i}', 'x' * 10000)\nreturn {'score': 1}")
    evaluation = one(sandbox, problem)
    assert sum(map(len, evaluation.artifacts.values())) <= problem.limits.log_bytes


@pytest.mark.parametrize("reason", sorted(NOT_THE_PROGRAMS_FAULT))
def test_a_script_cannot_excuse_a_program(reason):
    message = {"failed": {"kind": "crashed", "reason": reason, "detail": "x"}}
    assert read_outcome((), message) == Failure(FailureKind.CRASHED, "evaluator_failed", "x")
    assert read_outcome((), message, {reason}) == Failure(FailureKind.CRASHED, reason, "x")


def test_a_script_may_pass_on_that_the_sandbox_was_lost(make_problem):
    """Uncontained, a program can end its supervisor: it is evaluated again, and then it fails for that."""
    program = "import os, time\ndef solve(x):\n    os.kill(os.getppid(), 9)\n    time.sleep(30)\n"
    script = "def evaluate(candidate, context):\n    return {'score': candidate.call('solve', 1).unwrap()}\n"
    problem = make_problem("evaluator", evaluator=script, limits={"wall_s": 20})
    with closing(SandboxEvaluator("unsafe")) as unsafe:
        (evaluation,) = unsafe.evaluate(problem, [program], seeds=[0])
    assert evaluation.failure is not None
    assert evaluation.failure.reason == "supervisor_killed"


def test_a_script_that_forges_one_is_not_believed(sandbox, make_problem):
    script = (
        "def evaluate(candidate, context):\n"
        "    reply = candidate.call('missing')\n"
        "    reply.failure.reason = 'batch_deadline'\n"
        "    reply.unwrap()\n"
    )
    problem = make_problem("evaluator", evaluator=script, limits={"wall_s": 20})
    failure = one(sandbox, problem).failure
    assert failure is not None
    assert failure.reason == "evaluator_failed"


def test_what_cannot_be_started_ahead_of_time_harms_nobody(sandbox, scripted, monkeypatch):
    started, start = [], Supervisor.start

    def short_of_descriptors(supervisor, ended):
        started.append(supervisor)
        if len(started) == 3:  # after the script and the first candidate
            raise OSError(errno.EMFILE, "Too many open files")
        return start(supervisor, ended)

    monkeypatch.setattr(Supervisor, "start", short_of_descriptors)
    problem = scripted("return {'score': candidate.call('solve', 1).unwrap()}")
    assert [e.rewards for e in sandbox.evaluate(problem, [DOUBLE] * 2, seeds=[0] * 2)] == [(2.0,), (2.0,)]
    assert len(started) == 4


CONTINUES = """
import json
def solve(x):
    try:
        found = json.load(open("data/best.json"))
    except OSError:
        found = []
    return found + [x]
"""


def test_a_carried_output_reaches_candidate_and_script_and_goes_with_its_batch(sandbox, scripted):
    body = (
        "found = candidate.call('solve', 7).unwrap()\n"
        "context.note('output', json.dumps(found))\n"
        "return {'score': float(len(found))}"
    )
    problem = scripted("import json\n" + body, carry="best", files={"helper.py": ""})
    first = one(sandbox, problem, CONTINUES)
    assert (first.rewards, first.artifacts["output"]) == ((1.0,), "[7]")
    second = one(sandbox, with_output(problem, CarriedOutput(1, first.artifacts["output"])), CONTINUES)
    assert (second.rewards, second.artifacts["output"]) == ((2.0,), "[7, 7]")
    assert one(sandbox, problem, CONTINUES).rewards == (1.0,)
    # A candidate can write neither the file nor its folder, so it cannot change the start of the next.
    spoil = "def solve(x):\n    open('data/best.json', 'w').write('[]')\n"
    carrying = with_output(problem, CarriedOutput(1, "[1, 2]"))
    failed, kept = sandbox.evaluate(carrying, [spoil, CONTINUES], seeds=[0, 0])
    assert failed.failure is not None
    assert kept.rewards == (3.0,)
    assert not list(sandbox._sandbox.folders.root.iterdir())


def test_an_output_that_begins_like_binary_data_is_the_same_text_for_the_next(sandbox, scripted):
    problem = with_output(
        scripted("return candidate.call('solve').unwrap()", carry="best"), CarriedOutput(1, LIKE_BINARY)
    )
    program = f"def solve():\n    return int(open('data/best.json').read() == {LIKE_BINARY!r})\n"
    assert one(sandbox, problem, program).rewards == (1.0,)


def test_an_output_that_is_too_long_is_left_out_whole(sandbox, scripted):
    problem = scripted("context.note('output', 'x' * 5000)\nreturn {'score': 1.0}", carry="best")
    limits = problem.limits.model_copy(update={"log_bytes": 4096})
    evaluation = one(sandbox, problem.model_copy(update={"limits": limits}))
    assert evaluation.artifacts == {"output left out": "it has at least 5000 characters, limits.log_bytes leaves 4096"}


@pytest.mark.parametrize("kind", ["evaluator", "data"])
def test_files_of_the_script_lie_beside_it(sandbox, make_problem, kind):
    function = "evaluate(candidate, context)" if kind == "evaluator" else "score(text, context)"
    script = (
        "import asyncio, pathlib\n"
        "from helper import double\n"
        "from shapes.area import square\n"
        f"async def {function}:\n"
        "    await asyncio.sleep(0)\n"
        "    here = pathlib.Path(__file__).parent\n"
        "    words = (here / 'points.txt').read_text() + (here / 'shared.txt').read_text()\n"
        "    return {'score': double(int(words)) + square(2)}\n"
    )
    files = {
        "helper.py": "def double(x):\n    return 2 * x\n",
        "shapes/area.py": "from helper import double\ndef square(x):\n    return x * double(x) / 2\n",
        "points.txt": "1",
        "not a name": "kept as a text",
    }
    problem = make_problem(kind, evaluator=script, files=files, data_files={"shared.txt": "2"})
    assert one(sandbox, problem).rewards == (28.0,)


def test_candidates_do_not_see_files_of_the_script(sandbox, scripted):
    problem = scripted("return {'score': candidate.call('names').unwrap()}", files={"secret.txt": "4"})
    program = "import glob\ndef names():\n    return len(glob.glob('**', recursive=True))\n"
    assert one(sandbox, problem, program).rewards == (0.0,)


def test_a_record_without_a_number_loses_no_candidate_and_an_objective_does(sandbox, make_problem):
    script = "def evaluate(candidate, context):\n    return {'score': 1, 'ms': {'a': 0j}}\n"
    objectives = [{"name": "score"}, {"name": "ms", "role": "record", "range": [3, 9]}]
    kept = one(sandbox, make_problem("evaluator", evaluator=script, objectives=objectives))
    assert kept.rewards == (1.0, 3.0)
    assert kept.artifacts["not measured"] == "ms"
    own = script.replace("    return", "    context.note('not measured', 'rank')\n    return")
    both = one(sandbox, make_problem("evaluator", evaluator=own, objectives=objectives))
    assert both.artifacts["not measured"] == "ms, rank"
    objectives[1]["role"] = "objective"
    lost = one(sandbox, make_problem("evaluator", evaluator=script, objectives=objectives))
    assert "reward 'ms' is dict: expected a finite number" in lost.failure.detail


def test_a_mistake_with_the_interface_says_what_it_is(sandbox, scripted):
    for body, hint in (
        ("return {'score': candidate.call('solve', 4) - 1}", "(call() returns a Reply: .unwrap() is its value)"),
        ("return {'score': len(candidate.program)}", "(its text is .source)"),
    ):
        failure = sandbox.evaluate(scripted(body), ["def solve(n):\n    return n\n"], seeds=[0])[0].failure
        assert failure.last_line.endswith(hint)
