"""Scripts start processes in tier A: inside the same walls, within the limit, and gone with their evaluation."""

import json

import pytest

from speciate.domain.candidate import FailureKind
from tests.sandbox.arenas import GOOD, PATIENT, Arena, make_problem, until
from tests.sandbox.programs import number

HEAD = """
import ctypes, json, multiprocessing, os, resource, signal, socket, subprocess, sys, threading, time
"""
EVALUATOR = (
    HEAD
    + """
def evaluate(candidate, context):
    there = json.loads(context.files.get("there.json", "{{}}"))
    {body}
"""
)
IN_PROCESS = (
    HEAD
    + """
def evaluate(path):
    {body}
"""
)
WORKING = {
    "subprocess": "return {'score': float(subprocess.run(['echo', '1'], capture_output=True).stdout)}",
    "a shell": "return {'score': float(os.popen('expr 3 - 2').read())}",
    "python with packages": (
        "return {'score': float(subprocess.run([sys.executable, '-c', 'import numpy; print(numpy.ones(1)[0])'],"
        " capture_output=True, check=True).stdout)}"
    ),
    "a pool": "return {'score': sum(multiprocessing.get_context('fork').Pool(2).map(abs, [-1, 0]))}",
    "a lock": (
        "lock = multiprocessing.Lock()\n    with lock:\n        return {'score': float(not lock.acquire(block=False))}"
    ),
    "shared memory": (
        "from multiprocessing.shared_memory import SharedMemory\n"
        "    kept = SharedMemory(create=True, size=8)\n    kept.buf[0] = 1\n"
        "    same = SharedMemory(kept.name)\n    return {'score': same.buf[0]}"
    ),
    "a compiled program": (
        "open('one.sh', 'w').write('#!/bin/sh\\necho 1\\n')\n    os.chmod('one.sh', 0o700)\n"
        "    return {'score': float(subprocess.check_output('./one.sh'))}"
    ),
}


def problem(kind: str, body: str, **fields):
    script = (EVALUATOR if kind == "evaluator" else IN_PROCESS).format(body=body)
    more = {} if kind == "evaluator" else {"confirmations": 1}
    return {"kind": kind, "evaluator": script, "cases": [], **more, **fields}


@pytest.fixture(params=["A as root", "A as an ordinary user"])
def walls(request, enter) -> Arena:
    arena = enter(request.param)
    for kind in ("evaluator", "in_process"):  # the first one of a kind starts a zygote, which stays
        arena.evaluate(make_problem(**problem(kind, "return {'score': 0}")), [GOOD])
    arena.settle()  # what scripts started ends a moment after their results
    return arena


@pytest.mark.parametrize("kind", ["evaluator", "in_process"])
@pytest.mark.parametrize("body", WORKING.values(), ids=WORKING)
def test_a_script_starts_processes(walls, kind, body):
    assert walls.attack(GOOD, **problem(kind, body)).rewards == (1.0,)


def test_in_tier_b_it_starts_none(enter):
    body = "try: os.fork() or os._exit(0)\n    except PermissionError: return {'score': 1}"
    assert enter("B as root").attack(GOOD, **problem("evaluator", body)).rewards == (1.0,)


OUTLIVING = {
    "a daemon": "subprocess.Popen(['sleep', '600'], start_new_session=True)",
    "an orphan": "os.fork() or (os.fork() and os._exit(0)) or time.sleep(600)",
    "one that ignores signals": (
        "os.fork() or ([signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)], time.sleep(600))"
    ),
    "one whose first thread has ended": (
        "os.fork() or (threading.Thread(target=time.sleep, args=(600,)).start(),"
        f" ctypes.CDLL(None).syscall({number(60, 93)}, 0))\n    time.sleep(0.3)"
    ),
    "a child of a thread": (
        "threading.Thread(target=lambda: (subprocess.Popen(['sleep', '600']), time.sleep(600)), daemon=True).start()\n"
        "    time.sleep(0.3)"
    ),
}


@pytest.mark.parametrize("kind", ["evaluator", "in_process"])
@pytest.mark.parametrize("body", OUTLIVING.values(), ids=OUTLIVING)
def test_a_child_does_not_outlive_its_evaluation(walls, kind, body):
    """The next program of the batch meets a fresh process: the first one leaves a file, and finds none."""
    found = "first = not os.path.exists('/tmp/met')\n    open('/tmp/met', 'w')\n"
    fields = problem(kind, f"{found}    {body}\n    return {{'score': float(first)}}", limits=PATIENT)
    family = walls.family()
    results = walls.evaluate(make_problem(**fields), [GOOD, GOOD])
    assert [each.rewards for each in results] == [(1.0,), (1.0,)], results
    walls.check()
    until(lambda: walls.family() == family)


def test_a_program_that_has_ended_does_not_cost_the_script_its_state(walls):
    body = (
        "subprocess.Popen(['true']) and time.sleep(0.3)\n    first = not os.path.exists('/tmp/met')\n"
        "    open('/tmp/met', 'w')\n    return {'score': float(first)}"
    )
    results = walls.evaluate(make_problem(**problem("evaluator", body)), [GOOD, GOOD])
    assert [each.rewards for each in results] == [(1.0,), (0.0,)], results


@pytest.mark.parametrize("kind", ["evaluator", "in_process"])
def test_a_bomb_of_forks_stops_at_the_limit(walls, kind):
    body = (
        "made = 0\n    try:\n        while made < 500:\n            if os.fork() == 0: time.sleep(600)\n"
        "            made += 1\n    except BlockingIOError: pass\n    return {'score': made}"
    )
    evaluation = walls.attack(GOOD, **problem(kind, body, limits={**PATIENT, "threads": 4, "processes": 8}))
    assert evaluation.rewards is not None, evaluation
    assert 8 <= evaluation.rewards[0] <= 12


START = {
    "children": "hold()",
    "children of threads": "threading.Thread(target=hold).start()",
    "children of a supervisor without descriptors": "resource.prlimit(1, resource.RLIMIT_NOFILE, (2, 2)) and hold()",
}


@pytest.mark.parametrize("start", START.values(), ids=START)
def test_memory_of_all_children_counts_together(walls, start):
    body = (
        "def hold():\n        if os.fork() == 0:\n            kept = b'x' * (60 << 20)\n            time.sleep(600)\n"
        "        time.sleep(0 if threading.current_thread() is threading.main_thread() else 600)\n"
        f"    for _ in range(4):\n        try: {start}\n        except PermissionError: hold()\n"
        "    time.sleep(15)\n    return {'score': 1}"
    )
    failure = walls.attack(GOOD, **problem("in_process", body, limits={**PATIENT, "memory_bytes": 128 << 20})).failure
    assert failure is not None
    assert failure.kind is FailureKind.OUT_OF_MEMORY, failure


def test_memory_that_children_share_counts_once(walls):
    body = (
        "kept = bytearray(80 << 20)\n    for _ in range(4):\n        if os.fork() == 0: time.sleep(600)\n"
        "    time.sleep(0.3)\n    return {'score': 1}"
    )
    evaluation = walls.attack(GOOD, **problem("in_process", body, limits={**PATIENT, "memory_bytes": 128 << 20}))
    assert evaluation.rewards == (1.0,), evaluation


def test_signals_do_not_end_the_supervisor(walls):
    body = (
        "for number in {*signal.valid_signals()} - {9}:\n        try: os.kill(1, number)\n        except OSError: pass\n"
        "    time.sleep(0.3)\n    return {'score': 1}"
    )
    evaluation = walls.attack(GOOD, **problem("in_process", body))
    assert evaluation.rewards == (1.0,), evaluation
    assert evaluation.cpu_s > 0


REACHING = {
    "connect": "socket.create_connection(tuple(there['addresses']['tcp']), 1)",
    "read /etc/passwd": "open('/etc/passwd').read(1)",
    "read through a link": "os.symlink('/etc/passwd', 'link') or open('link').read(1)",
    "link a file": "os.link(there['outside'] + '/text', 'link')",
    "signal the worker": "os.kill(there['worker'], 0)",
    "a new user namespace": "subprocess.run(['unshare', '-U', 'true'], check=True)",
    "limits of the supervisor": "resource.prlimit(1, resource.RLIMIT_NOFILE)",
    "trace": "__import__('ctypes').CDLL(None).ptrace(16, os.getppid(), 0, 0) and (_ for _ in ()).throw(OSError)",
}


@pytest.mark.parametrize("body", REACHING.values(), ids=REACHING)
def test_a_child_reaches_nothing(walls, outside, body):
    """A child runs the attack; its exit code tells whether it was refused."""
    script = (
        "pid = os.fork()\n    if pid == 0:\n        try:\n"
        f"            {body}\n        except (OSError, subprocess.CalledProcessError): os._exit(7)\n        os._exit(0)\n"
        "    return {'score': float(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7)}"
    )
    files = {"there.json": json.dumps(outside.seen_by(walls))}
    evaluation = walls.attack(GOOD, **problem("evaluator", script, files=files))
    assert evaluation.rewards == (1.0,), evaluation


def test_what_a_candidate_plants_reaches_no_other(walls):
    """Files and variables that change what a started program does stay with the candidate that made them."""
    plant = """
import os
for name in ("sitecustomize.py", "usercustomize.py", "numpy.py"):
    open("/tmp/" + name, "w").write("raise SystemExit(9)")
os.environ |= {"LD_PRELOAD": "/tmp/evil.so", "PYTHONPATH": "/tmp", "PYTHONSTARTUP": "/tmp/numpy.py", "BASH_ENV": "/tmp/x"}
"""
    body = (
        "exec(open(path).read())\n"
        "    done = subprocess.run([sys.executable, '-c', 'import numpy'], capture_output=True, text=True)\n"
        "    return {'score': float(done.returncode == 0 and not done.stderr)}"
    )
    results = walls.evaluate(make_problem(**problem("in_process", body)), [plant, "x = 1", plant, "x = 1"])
    assert [each.rewards for each in results] == [(0.0,), (1.0,)] * 2, results


def test_a_candidate_starts_nothing_although_its_script_may(walls):
    program = "import os\ndef solve(x):\n    os.fork() or os._exit(0)\n    return 1\n"
    body = "return {'score': float('PermissionError' in candidate.call('solve', 1).failure.detail)}"
    assert walls.attack(program, **problem("evaluator", body)).rewards == (1.0,)


BURN = (
    "{first}subprocess.call([sys.executable, '-c', 'import time; kept = bytes(range(256)) * 250_000\\n"
    "while time.process_time() < 1: pass'])\n"
    "    return {{'score': 1}}"
)


def test_usage_of_processes_counts_also_if_the_script_ignores_their_end(walls):
    """The kernel drops the usage of children whose parent ignores SIGCHLD."""
    for first in ("", "signal.signal(signal.SIGCHLD, signal.SIG_IGN); "):
        body = BURN.format(first=first)
        found = walls.attack(GOOD, **problem("in_process", body, limits={"wall_s": 60, "cpu_s": 60}))
        assert found.rewards == (1.0,)
        assert found.cpu_s > 0.8
        assert found.memory_bytes > 60 << 20


WORK = """
def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
    os._exit(0)
"""
SPENDING = {
    "at a time": "for _ in range(4): os.fork() or work(60)\n    time.sleep(600)",
    "one after another": "while True: os.fork() and os.wait() or work(0.3)",
    "whose end is not reported": (
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n    while True:\n        os.fork() or work(0.3)\n"
        "        try: os.wait()\n        except ChildProcessError: pass"
    ),
    "that their parents leave": (
        "while True:\n        os.fork() and os.wait() or (os.fork() and os._exit(0)) or work(0.3)\n"
        "        time.sleep(0.3)"
    ),
    "of children whose end is not reported": (
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n    while True:\n        if os.fork() == 0:\n"
        "            signal.signal(signal.SIGCHLD, signal.SIG_DFL)\n"
        "            for _ in range(30): os.fork() and os.wait() or work(0.01)\n            os._exit(0)\n"
        "        try: os.wait()\n        except ChildProcessError: pass"
    ),
}


@pytest.mark.parametrize("body", SPENDING.values(), ids=SPENDING)
def test_processor_time_of_all_children_counts_together(walls, body):
    fields = problem("in_process", body, limits={"wall_s": 60, "cpu_s": 1, "processes": 60})
    fields["evaluator"] = WORK + fields["evaluator"]
    found = walls.attack(GOOD, **fields)
    assert found.failure is not None
    assert (found.failure.kind, found.failure.reason) == (FailureKind.TIMEOUT, "cpu_limit"), found
    assert found.cpu_s < 2


def test_children_that_wait_for_each_other_were_not_kept_waiting_by_others(walls):
    body = "for _ in range(11): os.fork() or work(600)\n    work(600)"
    fields = problem("in_process", body, limits={"wall_s": 1, "cpu_s": 600})
    fields["evaluator"] = WORK + fields["evaluator"]
    found = walls.attack(GOOD, **fields)
    assert found.failure is not None
    assert found.failure.reason == "wall_limit", found
    assert min(found.cpu_s, found.wall_s) < 2.5
