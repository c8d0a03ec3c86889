"""A candidate that never answers meets the wall limit, which the candidate's clock does not influence."""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from speciate.domain.candidate import FailureKind
from tests.sandbox.arenas import CASES, CONTAINING, NOT_TRIED, PATIENT, SHORT, Arena, ArenaClosedError, make_problem
from tests.sandbox.programs import attacks, in_solve

LOOP = "while True: pass"
IGNORE = "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\n"
BLOCK = "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))\n"

ENDLESS = {
    "infinite loop": in_solve(LOOP),
    "loop on load": LOOP,
    "loop in C": in_solve("sum(iter(int, 1))"),
    "sleep forever": in_solve("time.sleep(1e6)", top="import time"),
    "ignored signals": in_solve(LOOP, top=IGNORE),
    "blocked signals": in_solve(LOOP, top=BLOCK),
    "stop self": in_solve("os.kill(os.getpid(), 19)", top="import os"),
    "stop self on load": "import os\nos.kill(os.getpid(), 19)",
    "wait for a signal": in_solve("signal.pause()", top="import signal"),
    "loop in a thread and wait": in_solve(
        "t.join()",
        top="import threading\nt = threading.Thread(target=eval, args=('[0 for _ in iter(int, 1)]',))\nt.start()",
    ),
    "loop on exit": f"try:\n    raise SystemExit\nfinally:\n    {LOOP}\n",
    "catch everything and go on": "while True:\n    try:\n        while True: pass\n    except BaseException: pass\n",
    "read the channel for ever": in_solve("while True: os.read(3, 1); time.sleep(1)", top="import os, time"),
    "half a frame": "import os, time\nos.write(3, b'\\0\\0\\1\\0{')\ntime.sleep(30)",
    "stdout flood": in_solve("while True: print('x' * 100000)"),
    "stderr flood": in_solve("while True: os.write(2, b'x' * 100000)", top="import os"),
}


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_answers_times_out(any_arena, name):
    failure = attacks(any_arena, ENDLESS, limits=SHORT | {"wall_s": 0.2})[name].failure
    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT


def test_processor_time_ends_even_where_its_signal_is_ignored(arena):
    failure = arena.attack(in_solve(LOOP, top=IGNORE), limits=PATIENT | {"cpu_s": 0.1}).failure
    assert failure is not None
    assert (failure.kind, failure.reason) == (FailureKind.TIMEOUT, "cpu_limit")


CLOCKS = {
    "clocks that stand still": (
        "import time\ntime.time = time.monotonic = time.perf_counter = time.process_time = int\n"
    ),
    "usage that is forged": "import resource\nresource.getrusage = lambda *a: [0] * 16\n",
    "a timer of its own": (
        "import signal\nsignal.signal(14, lambda *a: None)\nsignal.setitimer(signal.ITIMER_REAL, 1e-3, 1e-3)\n"
    ),
}


@pytest.mark.parametrize("top", CLOCKS.values(), ids=CLOCKS)
def test_measures_are_the_supervisors(any_arena, top):
    used = time.process_time()
    for _ in range(1_000_000):  # the same work as the candidate's, in processor time: waiting for a core must not count
        pass
    one_case = time.process_time() - used
    begun = time.monotonic()
    evaluation = any_arena.attack(in_solve("for _ in range(1_000_000): pass", "return 2 * x", top=top))
    assert evaluation.rewards == (1.0,)
    assert one_case < evaluation.cpu_s < 20
    assert evaluation.cpu_s / 4 < evaluation.wall_s <= time.monotonic() - begun


def test_a_clock_that_stands_still_does_not_stop_the_wall_limit(arena):
    top = CLOCKS["clocks that stand still"]
    failure = arena.attack(in_solve("while time.time() < 9: pass", top=top), limits=SHORT).failure
    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT


@contextmanager
def on_one_processor() -> Iterator[None]:
    """Keep this process, and what it starts meanwhile, on one processor."""
    cpus = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cpus)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cpus)


@contextmanager
def crowd() -> Iterator[None]:
    """Run four others beside us that never rest."""
    # Each in a session of its own: where sessions are scheduled as groups, the others of one would count as one.
    busy = [subprocess.Popen([sys.executable, "-c", LOOP], start_new_session=True) for _ in range(4)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.fixture(params=CONTAINING)
def crowded(request: pytest.FixtureRequest) -> Iterator[Arena]:
    """A tier whose processes get a fifth of a processor."""
    with on_one_processor():
        try:
            arena = Arena(request.param)
        except ArenaClosedError as error:
            pytest.skip(f"{NOT_TRIED}tier {request.param}: {error}")
        with closing(arena), crowd():  # not needed at start and end: imports would take five times as long
            yield arena


def count_for(cpu_s: float) -> str:
    """Return what keeps a shell of this machine busy for about so many seconds of processor time."""
    count = "i=0\nwhile [ $i -lt {} ]; do i=$((i + 1)); done\n"
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(["sh", "-c", count.format(20_000)], check=True)
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    return count.format(int(20_000 * cpu_s / (now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime)))


CALLING = """
def evaluate(candidate, context):
    return {"score": sum(candidate.call("main", str(x)).value == str(2 * x) for x in range(4)) / 4}
"""
CROWDED = {"wall_s": 0.25, "cpu_s": 20, "log_bytes": 4096}


def test_time_in_which_others_have_the_processor_does_not_count_within_reason(crowded):
    until = "while time.thread_time() < begun + 0.1: pass"
    hungry = in_solve("begun = time.thread_time()", until, "return 2 * x", top="import time")
    sleeping = in_solve("time.sleep(30)", top="import time")
    problem = make_problem(cases=CASES[:1], limits=CROWDED)
    worked, slept, looped = crowded.evaluate(problem, [hungry, sleeping, in_solve(LOOP)])
    assert worked.rewards == (1.0,)
    assert worked.wall_s > CROWDED["wall_s"]  # else nothing was shown
    for late in slept, looped:
        assert late.failure is not None
        assert late.failure.reason == "wall_limit"
        assert late.wall_s < 30
    if crowded.tier == "A":  # the only one that runs commands, whose process sleeps while its child waits
        shell = {"name": "sh", "file": "a.sh", "run": ["sh", "a.sh"]}
        cases = [{"input": [str(x)], "expected": str(2 * x)} for x in range(4)]
        script = {"kind": "evaluator", "cases": [], "evaluator": CALLING}
        for fields in {"cases": cases}, script:  # calls that have ended waited, too
            doubling = make_problem(limits=CROWDED, language=shell, **fields)
            (worked,) = crowded.evaluate(doubling, [f"{count_for(0.03)}read x\necho $((2 * x))\n"])
            assert worked.rewards == (1.0,), worked
            assert worked.wall_s > 2 * CROWDED["wall_s"]
