"""Lowered priorities reach threads, children, and the session."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from speciate.priority import group_nice, set_group_nice

GROUPS = Path("/proc/self/autogroup").exists()

TELL = """
import json, os
from pathlib import Path
from speciate.priority import group_nice
def tell(pid="self"):
    path = Path("/proc", str(pid), "autogroup")
    group = int(path.read_text().split()[-1]) if path.exists() else None
    return os.getpriority(os.PRIO_PROCESS, 0 if pid == "self" else pid), group
"""

STEP = """
from speciate.priority import lower_priority
before = tell()
lower_priority(0)
assert tell() == before
import threading
waiter = threading.Thread(target=threading.Event().wait, daemon=True)
waiter.start()
lower_priority(7)
first = tell()
assert os.getpriority(os.PRIO_PROCESS, waiter.native_id) == first[0]
lower_priority(3)
import subprocess, sys
code = sys.argv[1] + "print(json.dumps(tell()))"
child = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
print(json.dumps([first, tell(), json.loads(child.stdout)]))
"""

CONTAIN = """
from contextlib import closing
from speciate.priority import lower_priority
from evaluators.evaluator_factory import open_evaluator
from speciate.domain.problem import Problem
lower_priority(7)
program = "import os\\ndef solve():\\n    return os.getpriority(os.PRIO_PROCESS, 0)"
objectives, targets = [{"name": "score"}], [{"name": "t", "rule": "score >= 1", "unlock": True}]
problem = Problem(slug="p", title="p", kind="cases", objectives=objectives, targets=targets,
                  cases=[{"input": [], "expected": 7}])
with closing(open_evaluator()) as sandbox:
    (found,) = sandbox.evaluate(problem, [program], seeds=[0])
    print(json.dumps([found.rewards, *(tell(pid) for pid in sandbox.zygotes)]))
"""


def run(code):
    # In a separate session, since the priority of a session cannot be raised again.
    done = subprocess.run(
        [sys.executable, "-c", TELL + code, TELL], capture_output=True, text=True, start_new_session=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def expected():
    return [max(7, os.getpriority(os.PRIO_PROCESS, 0)), 7 if GROUPS else None]


def test_the_session_of_a_terminal_keeps_its_priority(expected):
    within = "import subprocess, sys\nprint(subprocess.run([sys.executable, '-c', sys.argv[1] + sys.argv[2]],"
    within += " capture_output=True, check=True, text=True).stdout)"
    step = "from speciate.priority import lower_priority\nlower_priority(7)\nprint(json.dumps(tell()))"
    done = subprocess.run(
        [sys.executable, "-c", within, TELL, step], capture_output=True, text=True, start_new_session=True, check=True
    )
    nice, group = json.loads(done.stdout)
    assert nice == expected[0]
    assert group == (0 if GROUPS else None)


def test_a_lowered_priority_persists_and_is_inherited(expected):
    assert run(STEP) == [expected] * 3


def test_candidates_inherit_the_priority_of_their_worker(expected):
    (reward,), *zygotes = run(CONTAIN)
    assert reward == 1.0
    assert zygotes == [expected]


def test_a_missing_session_is_ignored():
    set_group_nice(5, 2**22 + 1)
    assert group_nice() >= 0
