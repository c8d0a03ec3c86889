"""The unsafe tier contains accidents and removes everything that was started or written."""

import os

import pytest

from speciate.domain.candidate import FailureKind
from tests.sandbox.arenas import SHORT, processes_with
from tests.sandbox.programs import in_solve

# Unlike that of another test worker, which runs the same attacks at the same time.
SECONDS = f"98765.{os.getpid()}"
SLEEP = f"['sleep', '{SECONDS}']"
SILENT = "env={}, cwd='/', stdin=-3, stdout=-3, stderr=-3"

DAEMONS = {
    "child": in_solve(f"subprocess.Popen({SLEEP})"),
    "own session": in_solve(f"subprocess.Popen({SLEEP}, start_new_session=True)"),
    "own session, nothing inherited": in_solve(f"subprocess.Popen({SLEEP}, start_new_session=True, {SILENT})"),
    "twice forked": in_solve(
        "if os.fork() == 0:",
        "    os.setsid()",
        "    if os.fork() == 0:",
        "        os.chdir('/')",
        "        os.closerange(0, 99)",
        f"        os.execve('/bin/sleep', {SLEEP}, {{}})",
        "    os._exit(0)",
        "os.wait()",
    ),
}


@pytest.mark.parametrize("ending", ["return 2 * x", "os._exit(0)", "while True: pass"])
@pytest.mark.parametrize("daemon", DAEMONS.values(), ids=DAEMONS)
def test_daemons_end_with_their_evaluation(unsafe, daemon, ending):
    unsafe.attack(f"import os, subprocess\n{daemon}    {ending}\n", limits=SHORT)
    assert processes_with(SECONDS.encode()) == set()


def test_a_tree_of_children_ends_with_its_evaluation(unsafe):
    program = in_solve(
        "for _ in range(5): os.fork()",
        "os.setsid() if os.getpgid(0) != os.getpid() else 0",
        "while True: pass",
        top="import os",
    )
    failure = unsafe.attack(program, limits=SHORT).failure
    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT


def test_files_are_removed_however_they_were_made(unsafe):
    program = in_solve(
        "os.makedirs('a/b')",
        "open('a/b/c', 'w').write('x')",
        "os.symlink('/etc', 'a/link')",
        "os.chmod('a/b', 0)",
        "here = os.open('.', 0)",
        "for _ in range(1500): os.mkdir('deep'); os.chdir('deep')",
        "os.fchdir(here)",
        "return 2 * x",
        top="import os\n",
    )
    evaluation = unsafe.attack(program, cases=[{"input": [1], "expected": 2}])
    assert evaluation.rewards == (1.0,)
    assert evaluation.cpu_s > 0  # the supervisor has lived to report


def test_who_kills_its_supervisor_has_crashed_and_leaves_nothing(unsafe):
    failure = unsafe.attack(in_solve("os.kill(os.getppid(), 9)", "time.sleep(30)", top="import os, time")).failure
    assert failure is not None
    assert (failure.kind, failure.reason) == (FailureKind.CRASHED, "supervisor_killed")


def test_every_evaluation_is_stamped(unsafe):
    assert unsafe.attack("def solve(x):\n    return 2 * x\n").tier == "unsafe"
