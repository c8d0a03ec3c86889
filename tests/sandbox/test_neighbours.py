"""Good candidates beside killers, and workers and zygotes that die: neither costs anybody else anything."""

import os
import signal
import time

import pytest

from tests.sandbox.arenas import CONTAINING, GOOD, UNSAFE, Arena, ArenaClosedError, make_problem, parent_of, until

KILLERS = [
    "import os\nos.kill(os.getpid(), 9)",
    "import os\nos.killpg(0, 9)",
    "import os\nos.kill(os.getppid(), 9)",
    "def solve(x):\n    import os\n    os._exit(0)",
    "def solve(x):\n    while True: print('x' * 10000)",
    "def solve(x):\n    return 'x' * (1 << 24)",
    "def solve(x):\n    return bytearray(1 << 40)",
    "import os\nos.closerange(0, 64)",
    "import os\nos.write(3, b'\\xff' * 100)",
    "import ctypes\nctypes.string_at(0)",
]
SCRIPT = """
def evaluate(candidate, context):
    return {"score": sum(candidate.call("solve", i).unwrap() == 2 * i for i in range(4)) / 4}
"""


@pytest.mark.parametrize("kind", ["cases", "evaluator"])
def test_fifty_of_fifty_good_candidates_pass_beside_killers(any_arena, kind):
    own = {"kind": "evaluator", "evaluator": SCRIPT} if kind == "evaluator" else {}
    problem = make_problem(limits={"wall_s": 3, "cpu_s": 1}, **own)
    programs = []
    for i in range(25):
        programs += [GOOD, KILLERS[i % len(KILLERS)], GOOD] if i % 3 == 0 else [GOOD, GOOD]
    results = any_arena.evaluate(problem, programs)
    passed = [each.rewards == (1.0,) for each, program in zip(results, programs, strict=True) if program == GOOD]
    assert passed == [True] * 50
    assert all(each.rewards is None for each, program in zip(results, programs, strict=True) if program != GOOD)
    any_arena.check()


@pytest.fixture(params=[*CONTAINING, UNSAFE])
def short_lived(request):
    try:
        return Arena(request.param)
    except ArenaClosedError as error:
        pytest.skip(f"not tried here: tier {request.param}: {error}")


SLOW = "import time\ndef solve(x):\n    time.sleep(0.2)\n    return 2 * x\n"


def test_everything_ends_with_a_worker_that_is_killed(short_lived):
    short_lived.begin(make_problem(limits={"wall_s": 60, "cpu_s": 60}), ["while True: pass"] * 2)
    until(lambda: len(short_lived.family()) > 2)
    short_lived.kill()
    short_lived.close()  # waits until all of its processes have ended
    assert not short_lived.space.exists()


@pytest.mark.parametrize(("kind", "after_s"), [("cases", 0.15), ("cases", 0.5), ("evaluator", 0.5)])
def test_an_evaluation_whose_zygote_is_killed_is_made_again(any_arena, kind, after_s):
    own = {"kind": "evaluator", "evaluator": SCRIPT} if kind == "evaluator" else {}
    kill_zygotes(any_arena, lambda: any_arena.begin(make_problem(**own), [SLOW, GOOD]), after_s)


def test_an_evaluation_that_loses_a_supervisor_is_made_again(any_arena):
    problem = make_problem(kind="evaluator", evaluator=SCRIPT.replace("unwrap()", "value"))  # no answer is a wrong one
    any_arena.evaluate(problem, [GOOD])
    before = any_arena.family()

    def supervisors():
        begun = any_arena.family() - before
        return sorted({parent_of(pid) for pid in begun} & begun)

    for turn in range(2):  # the script's and the candidate's
        number = any_arena.begin(problem, [SLOW])
        until(lambda: len(supervisors()) == 2)
        os.kill(supervisors()[turn], signal.SIGKILL)
        assert [each.rewards for each in any_arena.collect(number)] == [(1.0,)]
        until(lambda: any_arena.files() == set())  # what it made is removed, and nothing that is not its own


def test_a_zygote_that_is_killed_is_replaced(any_arena):
    kill_zygotes(any_arena)


def kill_zygotes(any_arena, begin=None, after_s=0.0):
    """Kill whatever waits for candidates, and what replaces it; what was begun is scored as if nothing had happened."""
    for _ in range(2):
        victims = any_arena.zygotes() | {pid for pid in any_arena.family() if pid != any_arena.pid}
        number = None if begin is None else begin()
        time.sleep(after_s)
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if number is not None:
            assert [each.rewards for each in any_arena.collect(number)] == [(1.0,)] * 2
        any_arena.check()
    until(lambda: len(any_arena.family()) <= 3)
