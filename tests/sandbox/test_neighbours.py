"""Good candidates beside killers, and brokers that die: neither costs anybody else anything."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Unlike that of another test worker, which runs the same attacks at the same time.
MARK = f"87654.{os.getpid()}"

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
    f"import subprocess\nsubprocess.Popen(['sleep', '{MARK}'], start_new_session=True)\nraise SystemExit",
]


@pytest.mark.parametrize("kind", ["cases", "evaluator"])
def test_twenty_good_candidates_pass_beside_killers(broker, sandbox_problem, kind):
    problem = sandbox_problem(kind, limits={"wall_s": 4, "cpu_s": 4})
    good = "def solve(x):\n    return 2 * x\n"
    programs = [program for killer in KILLERS for program in (good, killer, good)]
    results = broker.evaluate(problem, programs, seeds=range(len(programs)))
    assert [e.rewards for e, program in zip(results, programs, strict=True) if program == good] == [(1.0,)] * 20
    assert all(e.rewards is None for e, program in zip(results, programs, strict=True) if program != good)


WORKER = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
sys.path.insert(0, {root!r})
from evaluators.broker import Broker
from speciate.domain.problem import Problem
problem = Problem.model_validate(dict(
    slug="p", title="p", kind="cases", objectives=[dict(name="score")], cases=[dict(input=[1], expected=1)],
    targets=[dict(name="t", rule="score >= 1", unlock=True)], limits=dict(wall_s=600, cpu_s=600),
))
program = '''
import os, subprocess, sys
def solve(x):
    subprocess.Popen(["sleep", "{mark}"], start_new_session=True)
    open("ready", "w").write("x")
    while True: pass
'''
Broker("unsafe").evaluate(problem, [program, program], seeds=[0, 0])
"""


def test_everything_ends_with_a_broker_that_is_killed(space, marked):
    worker = subprocess.Popen([sys.executable, "-c", WORKER.format(root=str(ROOT), mark=MARK), str(space)])
    try:
        _until(lambda: list(space.glob("*/ready")))
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    _until(lambda: not list(space.iterdir()))
    _until(lambda: not marked(os.fsencode(space)))
    assert marked(MARK.encode()) == []


def _until(done):
    deadline = time.monotonic() + 60
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)
