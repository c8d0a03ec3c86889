"""Good candidates beside killers, and brokers and zygotes that die: neither costs anybody else anything."""

import os
import signal
import time

import pytest

from tests.sandbox.arenas import CONTAINING, GOOD, UNSAFE, Arena, ArenaClosedError, make_problem, until

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
    problem = make_problem(limits={"wall_s": 3, "cpu_s": 3}, **own)
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


def test_everything_ends_with_a_broker_that_is_killed(short_lived):
    short_lived.begin(make_problem(limits={"wall_s": 60, "cpu_s": 60}), ["while True: pass"] * 2)
    time.sleep(0.3)
    assert len(short_lived.family()) > 2
    short_lived.kill()
    short_lived.close()  # waits until nobody of the family is left
    assert not short_lived.space.exists()


@pytest.mark.parametrize("at", ["between evaluations", "during one"])
def test_a_zygote_that_is_killed_is_replaced(any_arena, at):
    for _ in range(3):
        victims = any_arena.zygotes() | {pid for pid in any_arena.family() if pid != any_arena.pid}
        number = any_arena.begin(make_problem(), [SLOW, GOOD]) if at == "during one" else None
        if number is not None:
            time.sleep(0.15)
        for pid in victims:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if number is not None:
            assert [each.rewards for each in any_arena.collect(number)] == [(1.0,)] * 2
        any_arena.check()
    until(lambda: len(any_arena.family()) <= 3)
