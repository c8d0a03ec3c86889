"""Calls of a script over a direct line: the worker sleeps, hostile answers do no harm, and both time limits hold."""

from __future__ import annotations

import json
import os
import time
from types import SimpleNamespace
from typing import cast

import pytest

from evaluators.candidate_process import CandidateProcess
from evaluators.contained.direct_channel import CLOCK_BYTES
from evaluators.restarting_candidate import RestartingCandidate
from evaluators.session import Session
from evaluators.shared_clock import SharedClock
from speciate.domain.candidate import FailureKind

FORGERY = """
import json, os
def frame(message):
    body = json.dumps(message).encode()
    return len(body).to_bytes(4, "big") + body
"""
"""Start of programs that write to their channel themselves."""


@pytest.fixture
def scripted(make_problem):
    def make(body, wall_s=20.0, **fields):
        script = "def evaluate(candidate, context):\n" + "".join(f"    {line}\n" for line in body.splitlines())
        return make_problem("evaluator", evaluator=script, limits={"wall_s": wall_s}, **fields)

    return make


def one(sandbox, problem, program):
    (evaluation,) = sandbox.evaluate(problem, [program], seeds=[0])
    return evaluation


@pytest.fixture
def unasked(monkeypatch):
    """Fail if the worker itself asks a candidate."""

    def refuse(*_):
        raise AssertionError("a call passed through the worker")

    monkeypatch.setattr(CandidateProcess, "ask", refuse)


@pytest.mark.usefixtures("unasked")
def test_calls_do_not_pass_through_the_worker(sandbox, scripted):
    problem = scripted(
        "import numpy\n"
        "kept = [candidate.call('keep', i).unwrap() for i in range(50)]\n"
        "big = candidate.call('solve', list(range(100_000))).unwrap()\n"
        "array = candidate.call('solve', numpy.arange(3)).unwrap()\n"
        "return {'score': float(kept[-1] == 50 and len(big) == 100_000 and array == [0, 1, 2])}"
    )
    program = "kept = []\ndef keep(x):\n    kept.append(x)\n    return len(kept)\ndef solve(x):\n    return x\n"
    assert [e.rewards for e in sandbox.evaluate(problem, [program] * 3, seeds=[0] * 3)] == [(1.0,)] * 3


@pytest.mark.usefixtures("unasked")
def test_a_failed_call_keeps_process_and_line(sandbox, scripted):
    problem = scripted(
        "failed = candidate.call('solve', 0).failure\n"
        "context.note('failed', f'{failed.kind} {failed.reason}')\n"
        "return {'score': candidate.call('solve', 2).unwrap()}"
    )
    evaluation = one(sandbox, problem, "seen = []\ndef solve(x):\n    seen.append(x)\n    return len(seen) / bool(x)\n")
    assert evaluation.rewards == (2.0,)
    assert evaluation.artifacts["failed"] == "crashed raised"


def test_calls_with_a_limit_of_their_own_reach_the_same_process(sandbox, scripted):
    problem = scripted(
        "answers = [candidate.call('solve', timeout_s=5.0 if i % 2 else None).unwrap() for i in range(6)]\n"
        "return {'score': float(answers == [1, 2, 3, 4, 5, 6])}"
    )
    assert one(sandbox, problem, "seen = []\ndef solve():\n    seen.append(1)\n    return len(seen)\n").rewards == (
        1.0,
    )


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        ("os.write(3, (1 << 30).to_bytes(4, 'big'))", FailureKind.INVALID_OUTPUT, "malformed_frame"),
        ("os.write(3, (3).to_bytes(4, 'big') + b'[1]')", FailureKind.INVALID_OUTPUT, "malformed_frame"),
        ("os.write(3, (9).to_bytes(4, 'big') + b'{\"a\":NaN}')", FailureKind.INVALID_OUTPUT, "malformed_frame"),
        ("os.write(3, frame({'index': -1, 'error': 'nonsense', 'detail': ''}))", FailureKind.INVALID_OUTPUT, None),
        ("os.write(3, frame({'index': -1, 'value': 1}))", FailureKind.INVALID_OUTPUT, "malformed_frame"),
        ("[os.write(3, frame({'index': i, 'value': 1})) for i in range(1100)]", FailureKind.INVALID_OUTPUT, None),
        ("os.close(3)", FailureKind.CRASHED, None),
        ("os._exit(0)", FailureKind.CRASHED, "exited"),
    ],
)
def test_a_line_that_breaks_is_the_candidates_failure(sandbox, scripted, answer, kind, reason):
    problem = scripted("return {'score': candidate.call('solve', 1).unwrap()}")
    program = f"{FORGERY}\ndef solve(x):\n    {answer}\n    return 7\n"
    bad, good = sandbox.evaluate(problem, [program, "def solve(x):\n    return x\n"], seeds=[0, 0])
    assert bad.failure is not None
    assert bad.failure.kind is kind
    assert reason in (None, bad.failure.reason)
    assert good.rewards == (1.0,)


def test_an_answer_that_was_sent_before_its_question_does_not_count(sandbox, scripted):
    problem = scripted("return {'score': candidate.call('solve', 1).unwrap()}")
    early = "for i in range(200): os.write(3, frame({'index': i, 'value': 9}))\n"
    assert one(sandbox, problem, f"{FORGERY}{early}def solve(x):\n    return x\n").rewards == (1.0,)


def test_descriptors_that_a_candidate_sends_do_not_arrive(sandbox, scripted):
    problem = scripted(
        "import os\n"
        "def opened():\n"
        "    found = 0\n"
        "    for fd in range(64):\n"
        "        try:\n"
        "            found += bool(os.fstat(fd))\n"
        "        except OSError:\n"
        "            pass\n"
        "    return found\n"
        "before = opened()\n"
        "candidate.call('solve', 1).unwrap()\n"
        "return {'score': float(opened() == before > 3)}"
    )
    program = (
        "import os, socket\n"
        "def solve(x):\n"
        "    channel = socket.socket(fileno=os.dup(3))\n"
        "    try:\n"
        "        socket.send_fds(channel, [(2).to_bytes(4, 'big') + b'{}'], [1, 1, 1])\n"
        "    except OSError:\n"
        "        pass\n"
        "    return x\n"
    )
    assert one(sandbox, problem, program).rewards == (1.0,)


@pytest.mark.parametrize(
    "wait", ["time.sleep(60)", "os.write(3, (100).to_bytes(4, 'big')); time.sleep(60)", "[0 for _ in iter(int, 1)]"]
)
def test_a_call_that_does_not_end_uses_the_wall_limit_and_the_script_goes_on(sandbox, scripted, wait):
    problem = scripted(
        "import time\n"
        "first = candidate.call('solve').failure\n"
        "began = time.monotonic()\n"
        "second = candidate.call('solve').failure\n"
        "context.note('kinds', f'{first.kind} {second.kind} {time.monotonic() - began < 1}')\n"
        "return {'score': 1}",
        wall_s=0.5,
    )
    began = time.monotonic()
    evaluation = one(sandbox, problem, f"import os, time\ndef solve():\n    {wait}\n")
    assert evaluation.rewards == (1.0,)
    assert evaluation.artifacts["kinds"] == "timeout timeout True"
    assert time.monotonic() - began < 30


def test_the_scripts_own_time_does_not_count_for_the_candidate(sandbox, scripted):
    problem = scripted(
        "import time\n"
        "for _ in range(6):\n"
        "    time.sleep(0.3)\n"
        "    candidate.call('solve').unwrap()\n"
        "return {'score': 1}",
        wall_s=0.9,
    )
    assert one(sandbox, problem, "def solve():\n    return 1\n").rewards == (1.0,)


def test_the_candidates_time_does_not_count_for_the_script(sandbox, scripted, monkeypatch):
    monkeypatch.setattr("evaluators.batch.EvaluationBatch.author_s", 1.0)
    problem = scripted("for _ in range(5):\n    candidate.call('solve').unwrap()\nreturn {'score': 1}")
    assert one(sandbox, problem, "import time\ndef solve():\n    time.sleep(0.3)\n").rewards == (1.0,)
    hangs = scripted("candidate.call('solve').unwrap()\nwhile True: pass")
    failure = one(sandbox, hangs, "def solve():\n    return 1\n").failure
    assert failure is not None
    assert failure.reason == "evaluator_wall_limit"


def test_a_candidate_that_prints_much_does_not_wait(sandbox, scripted):
    problem = scripted("return {'score': candidate.call('solve').unwrap()}")
    evaluation = one(sandbox, problem, "def solve():\n    for _ in range(5000): print('x' * 1000)\n    return 1\n")
    assert evaluation.rewards == (1.0,)
    assert 0 < len(evaluation.artifacts["stdout"]) <= problem.limits.log_bytes


@pytest.mark.parametrize(("step", "answer"), [("acquire", None), ("post_with", False)])
def test_calls_pass_through_the_worker_where_a_channel_cannot_be_lent(sandbox, scripted, monkeypatch, step, answer):
    monkeypatch.setattr(Session, step, lambda *_: answer)
    problem = scripted("return {'score': candidate.call('solve', 4).unwrap()}")
    program = "def solve(x):\n    return x\n"
    assert [e.rewards for e in sandbox.evaluate(problem, [program] * 2, seeds=[0, 0])] == [(4.0,)] * 2


def test_the_channel_of_a_relay_outside_the_sandbox_is_not_lent():
    candidate = SimpleNamespace(_batch=SimpleNamespace(image=object()))
    assert RestartingCandidate.acquire_channel(cast("RestartingCandidate", candidate), lambda _: None) is None


def test_a_load_failure_waits_for_the_first_call(sandbox, scripted):
    problem = scripted("import time\ntime.sleep(0.4)\nreturn {'score': candidate.call('solve', 4).unwrap()}")
    for program, reason in [("def solve(:", "syntax_error"), ("import fancygraphs", "raised")]:
        failure = one(sandbox, problem, program).failure
        assert failure is not None
        assert failure.reason == reason


def test_after_a_death_the_candidates_time_does_not_count_for_the_script_either(sandbox, scripted, monkeypatch):
    monkeypatch.setattr("evaluators.batch.EvaluationBatch.author_s", 1.0)
    problem = scripted(
        "candidate.call('nap').unwrap()\n"
        "assert candidate.call('leave').failure\n"
        "candidate.call('nap').unwrap()\n"
        "return {'score': 1}"
    )
    program = "import os, time\ndef nap():\n    time.sleep(0.8)\ndef leave():\n    os._exit(0)\n"
    assert one(sandbox, problem, program).rewards == (1.0,)


def test_a_channel_that_outlives_its_process_holds_nothing_up(sandbox, scripted):
    problem = scripted("context.note('kind', candidate.call('solve').failure.kind)\nreturn {'score': 1}", wall_s=0.5)
    program = (
        "import socket\n"
        "def solve():\n"
        "    one, two = socket.socketpair()\n"
        "    socket.send_fds(one, [b'x'], [3, one.fileno(), two.fileno()])\n"
        "    while True:\n"
        "        pass\n"
    )
    began = time.monotonic()
    evaluation = one(sandbox, problem, program)
    assert (evaluation.rewards, evaluation.artifacts["kind"]) == ((1.0,), "timeout")
    assert time.monotonic() - began < 30


def test_a_script_may_write_no_files(sandbox, make_problem):
    script = "def evaluate(candidate, context):\n    return {'score': candidate.call('solve').unwrap()}\n"
    problem = make_problem("evaluator", evaluator=script, limits={"file_bytes": 0})
    assert one(sandbox, problem, "def solve():\n    return 1\n").rewards == (1.0,)


def test_a_script_that_raised_its_recursion_limit_survives_deep_answers(sandbox, scripted):
    problem = scripted("import sys\nsys.setrecursionlimit(10**8)\nreturn {'score': candidate.call('solve').unwrap()}")
    program = f"{FORGERY}\ndef solve():\n    os.write(3, (200_000).to_bytes(4, 'big') + b'[' * 200_000)\n"
    bad, good = sandbox.evaluate(problem, [program, "def solve():\n    return [1][0]\n"], seeds=[0, 0])
    assert bad.failure is not None
    assert bad.failure.reason == "malformed_frame"
    assert good.rewards == (1.0,)


def test_a_script_that_changes_its_sockets_and_descriptors_harms_itself_alone(sandbox, scripted):
    problem = scripted(
        "import fcntl, os, socket\n"
        "socket.setdefaulttimeout(0.05)\n"
        "fcntl.fcntl(candidate._direct._clock_fd, fcntl.F_SETFL, os.O_APPEND)\n"
        "candidate.call('nap', timeout_s=5.0).unwrap()\n"
        "return {'score': 1}"
    )
    program = "import time\ndef nap():\n    time.sleep(0.3)\n"
    assert [e.rewards for e in sandbox.evaluate(problem, [program] * 3, seeds=[0] * 3)] == [(1.0,)] * 3


THREAD = """
from concurrent.futures import ThreadPoolExecutor, TimeoutError as Late
def limited(seconds, *args, **options):
    return ThreadPoolExecutor(1).submit(*args, **options).result(timeout=seconds)
"""
ALARM = """
import signal
class Late(Exception): pass
def ring(*_): raise Late
signal.signal(signal.SIGALRM, ring)
def limited(seconds, function, *args, **options):
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        return function(*args, **options)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
"""


@pytest.mark.parametrize("limited", [THREAD, ALARM], ids=["thread", "alarm"])
@pytest.mark.parametrize("timeout", ["", ", timeout_s=5"], ids=["direct", "relayed"])
def test_a_script_that_stops_waiting_gets_no_answer_of_another_call(sandbox, make_problem, limited, timeout):
    script = f"""{limited}
def evaluate(candidate, context):
    got = []
    for i in range(3):
        try:
            got.append(limited(0.2, candidate.call, "solve", i{timeout}).value)
        except Late:
            got.append(-1)
    context.note("got", got)
    return sum(answer == 2 * i for i, answer in enumerate(got)) / 3
"""
    program = "import time\ndef solve(x):\n    if x == {at}: time.sleep(0.5)\n    return 2 * x\n"
    problem = make_problem("evaluator", evaluator=script, limits={"wall_s": 20})
    found = sandbox.evaluate(problem, [program.format(at=at) for at in (0, 2, 3)], seeds=[0] * 3)
    assert all(answer in (-1, 2 * i) for i, answer in enumerate(json.loads(found[0].artifacts["got"])))
    assert [each.rewards for each in found[1:]] == [(pytest.approx(2 / 3),), (1.0,)]


@pytest.mark.parametrize("timeout", ["", ", timeout_s=5"], ids=["direct", "relayed"])
def test_calls_of_threads_get_their_own_answers_and_forked_processes_none(sandbox, scripted, timeout):
    problem = scripted(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "from multiprocessing import get_context\n"
        f"def double(i):\n    return candidate.call('solve', i{timeout}).value\n"
        "with ThreadPoolExecutor(4) as pool:\n"
        "    right = list(pool.map(double, range(40))) == list(range(0, 80, 2))\n"
        "child = get_context('fork').Process(target=double, args=(0,))\n"
        "child.start()\nchild.join()\n"
        "context.note('child', child.exitcode)\n"
        "return float(right)"
    )
    evaluation = one(sandbox, problem, "def solve(x):\n    return 2 * x\n")
    assert (evaluation.rewards, evaluation.artifacts["child"]) == ((1.0,), "1"), evaluation


def test_the_shared_clock_reads_within_the_time_that_has_passed():
    clock, began = SharedClock(), time.monotonic()
    try:
        clock.start()
        assert (clock.read().calling, clock.read().candidate_s) == (False, 0.0)
        for stated, calling, whole in [(1 << 62, False, True), (-1 - (1 << 62), True, False), (-1, True, True)]:
            os.pwrite(clock.fd, stated.to_bytes(CLOCK_BYTES, "little", signed=True), 0)
            reading = clock.read()
            assert reading.calling is calling
            assert (reading.candidate_s > 0) is whole
            assert reading.candidate_s <= time.monotonic() - began
        with pytest.raises(OSError, match="not permitted"):
            os.ftruncate(clock.fd, 1 << 20)
    finally:
        clock.close()
