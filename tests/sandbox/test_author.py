"""An author's script is a program of a stranger, too: it runs behind the same walls."""

import json
from functools import cache

import pytest

from tests.sandbox.arenas import GOOD, UNSAFE, Arena, make_problem
from tests.sandbox.surroundings import Surroundings

REACHING = {
    "read /etc/passwd": "open('/etc/passwd').read(1)",
    "read a file of a stranger": "open(there['outside'] + '/text').read(1)",
    "read the worker's environment": "open(f\"/proc/{there['worker']}/environ\", 'rb').read(1)",
    "write a file of a stranger": "open(there['outside'] + '/text', 'w')",
    "write where Python is": "open(there['shown'] + '/text', 'w')",
    "create": "open(there['outside'] + '/new', 'x')",
    "connect": "socket.create_connection(tuple(there['addresses']['tcp']), 1)",
    "connect by an abstract name": "socket.socket(socket.AF_UNIX).connect(there['addresses']['abstract'])",
    "connect by a name": "socket.socket(socket.AF_UNIX).connect(there['addresses']['named'])",
    "signal": "os.kill(there['worker'], 0)",
    "signal the supervisor": "os.kill(os.getppid(), 0)",
}
STARTING = {"fork": "os.fork() or os._exit(0)", "start a program": "subprocess.run(['true'])"}
"""Refused to functions that score texts. Scripts of other kinds may: see ``test_script_processes``."""
_SCRIPT = """
import json, os, socket, subprocess
def {function}(candidate, context):
    there = json.loads(context.files["there.json"])
    breached = []
{attempts}
    context.note("breached", json.dumps(breached))
    return {{"score": 1}}
"""


@cache
def breached(arena: Arena, outside: Surroundings, kind: str) -> list[str]:
    """Return the names of the attempts that one script of this kind succeeds with."""
    bodies = REACHING | (STARTING if kind == "data" or arena.name == UNSAFE else {})
    lines = (
        f"    try:\n        {body}\n        breached.append({name!r})\n    except OSError: pass"
        for name, body in bodies.items()
    )
    script = _SCRIPT.format(function="score" if kind == "data" else "evaluate", attempts="\n".join(lines))
    files = {"there.json": json.dumps(outside.seen_by(arena))}
    # Problems with files have a zygote of their own, which stays.
    harmless = f"def {'score' if kind == 'data' else 'evaluate'}(candidate, context):\n    return {{'score': 1}}\n"
    arena.evaluate(make_problem(kind=kind, evaluator=harmless, files={"any.txt": ""}), [GOOD])
    evaluation = arena.attack(GOOD, kind=kind, evaluator=script, files=files)
    assert evaluation.rewards is not None, evaluation
    found: list[str] = json.loads(evaluation.artifacts["breached"])
    return found


def test_a_script_reaches_nothing(arena, outside):
    assert breached(arena, outside, "evaluator") == []


def test_a_function_that_scores_texts_reaches_and_starts_nothing(arena, outside):
    assert breached(arena, outside, "data") == []


@pytest.mark.parametrize("name", REACHING | STARTING)
def test_without_walls_it_does(unsafe, unsafe_outside, name):
    assert name in breached(unsafe, unsafe_outside, "evaluator")


ENDING = {
    "loop": "while True: pass",
    "die": "os._exit(0)",
    "kill its group": "os.killpg(0, 9)",
    "flood": "while True: os.write(3, b'x' * 100000)",
    "print": "while True: print('x' * 100000)",
    "eat": "[bytearray(1 << 24) for _ in range(1 << 20)]",
    "close": "os.closerange(0, 64)",
    "rewards without end": "return {str(i): i for i in range(100000)}",
}


@pytest.mark.parametrize("body", ENDING.values(), ids=ENDING)
def test_a_script_that_fails_is_the_failure_of_its_evaluation(arena, body):
    """Its time is bounded, though longer than a candidate's; the next batch meets a script that works."""
    script = f"import os\ndef score(text, context):\n    {body}\n"
    evaluation = arena.attack("text", kind="data", evaluator=script, limits={"wall_s": 0.4, "log_bytes": 4096})
    assert evaluation.failure is not None


def test_a_candidate_cannot_reach_its_script(arena):
    """The script's process is the candidate's neighbour, forked from the same zygote at the same time."""
    script = """
def evaluate(candidate, context):
    return {"score": int(candidate.call("attack").unwrap() == [])}
"""
    program = """
import os
def attack():
    done = []
    for pid in range(max(os.getpid() - 50, 1), os.getpid() + 50):
        if pid == os.getpid(): continue
        for path in ("mem", "environ", "cmdline", "fd/3"):
            try: open(f"/proc/{pid}/{path}", "rb"); done.append(path)
            except OSError: pass
        try: os.kill(pid, 0); done.append("kill")
        except OSError: pass
    return done
"""
    evaluation = arena.attack(program, kind="evaluator", evaluator=script)
    assert evaluation.rewards == (1.0,), evaluation


def test_the_good_script_still_works(arena):
    script = "def score(text, context):\n    return {'score': len(text)}\n"
    problem = make_problem(kind="data", evaluator=script)
    assert [e.rewards for e in arena.evaluate(problem, ["a", "bb"])] == [(1.0,), (2.0,)]
