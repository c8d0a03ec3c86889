"""What tier ``process`` promises: accidents and clumsy attacks stay inside. One test per attack."""

import os
import time
from pathlib import Path

import pytest

from speciate.domain.candidate import FailureKind

LOOP = "while True: pass"
IGNORE = "import signal\nfor s in set(signal.Signals) - {9, 19}: signal.signal(s, signal.SIG_IGN)\n"


# On a loaded machine a program needs time to show what it does; only those that never end should meet the limit.
PATIENT = {"wall_s": 20, "cpu_s": 20, "log_bytes": 4096}


def in_solve(*lines: str, top: str = "") -> str:
    return top + "\ndef solve(x):\n" + "".join(f"    {line}\n" for line in lines)


TIMEOUTS = {
    "infinite loop": in_solve(LOOP),
    "loop on load": LOOP,
    "sleep forever": in_solve("time.sleep(1e6)", top="import time"),
    "ignored signals": in_solve(LOOP, top=IGNORE),
    "stop self": in_solve("os.kill(os.getpid(), 19)", top="import os"),
    "loop in a thread and wait": in_solve(
        "t.join()",
        top="import threading\nt = threading.Thread(target=eval, args=('[0 for _ in iter(int, 1)]',))\nt.start()",
    ),
    "stdout flood": in_solve("while True: print('x' * 100000)"),
    "stderr flood": in_solve("while True: os.write(2, b'x' * 100000)", top="import os"),
}

DEATHS = {
    "kill self": in_solve("os.kill(os.getpid(), 9)", top="import os"),
    "kill own group": in_solve("os.killpg(0, 9)", top="import os"),
    "exit quietly": in_solve("os._exit(0)", top="import os"),
    "exit on load": "import os\nos._exit(0)",
    "abort": in_solve("os.abort()", top="import os"),
    "segfault": in_solve("ctypes.string_at(0)", top="import ctypes"),
    "exec another program": in_solve("os.execv('/bin/true', ['true'])", top="import os"),
    "close descriptors": in_solve("os.closerange(0, 64)", "time.sleep(30)", top="import os, time"),
    "kill the supervisor": in_solve("os.kill(os.getppid(), 9)", "time.sleep(30)", top="import os, time"),
}

REFUSALS = {
    "exit by exception": (in_solve("raise SystemExit(0)"), FailureKind.CRASHED),
    "interrupt": (in_solve("raise KeyboardInterrupt"), FailureKind.CRASHED),
    "deep recursion": (in_solve("return solve(x)"), FailureKind.CRASHED),
    "exception that cannot be printed": (
        in_solve("raise E", top="class E(Exception):\n    def __str__(self): raise self\n    __repr__ = __str__"),
        FailureKind.CRASHED,
    ),
    "huge allocation": (in_solve("return len(bytearray(100 << 30))"), FailureKind.OUT_OF_MEMORY),
    "huge value": (in_solve("return [0] * 3000000"), FailureKind.INVALID_OUTPUT),
    "nan": (in_solve("return float('nan')"), FailureKind.INVALID_OUTPUT),
    "self-containing value": (in_solve("a = []", "a.append(a)", "return a"), FailureKind.INVALID_OUTPUT),
    "huge integer": (in_solve("return 10 ** 10000"), FailureKind.INVALID_OUTPUT),
    "value without end": (
        in_solve("return V()", top="class V:\n    def tolist(self): return V()"),
        FailureKind.INVALID_OUTPUT,
    ),
    "object": (in_solve("return object()"), FailureKind.INVALID_OUTPUT),
    "equal to everything": (
        in_solve("return E()", top="class E:\n    def __eq__(self, o): return True\n    __hash__ = None"),
        FailureKind.INVALID_OUTPUT,
    ),
    "write a large file": (in_solve("open('f', 'wb').write(bytes(32 << 20))"), FailureKind.CRASHED),
    "many descriptors": (in_solve("return len([open('/dev/null') for _ in range(2000)])"), FailureKind.CRASHED),
    "raise own limits": (
        in_solve(
            "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))",
            "return [open('/') for _ in range(99)]",
            top="import resource",
        ),
        FailureKind.CRASHED,
    ),
}


@pytest.mark.parametrize("program", TIMEOUTS.values(), ids=TIMEOUTS)
def test_what_never_answers_times_out(attack, program):
    failure = attack(program).failure
    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize("program", DEATHS.values(), ids=DEATHS)
def test_what_ends_its_process_has_crashed(attack, program):
    failure = attack(program, limits=PATIENT).failure
    assert failure is not None
    assert failure.kind is FailureKind.CRASHED


@pytest.mark.parametrize(("program", "kind"), REFUSALS.values(), ids=REFUSALS)
def test_what_gives_no_value_says_why(attack, program, kind):
    failure = attack(program, limits=PATIENT).failure
    assert failure is not None
    assert failure.kind is kind


def test_growing_until_nothing_is_left_is_out_of_memory(attack):
    program = in_solve("a = []", "while True: a.append(bytearray(1 << 20))")
    failure = attack(program, limits={"wall_s": 30, "cpu_s": 30, "memory_bytes": 128 << 20}).failure
    assert failure is not None
    assert failure.kind is FailureKind.OUT_OF_MEMORY


def test_a_stack_that_overflows_is_a_failure(attack):
    top = "import sys\nsys.setrecursionlimit(1 << 30)"
    assert attack(in_solve("for _ in range(10 ** 6): x = [x]", "return repr(x)", top=top)).failure is not None


def test_a_flood_is_cut_to_its_end(attack):
    evaluation = attack(in_solve("print('x' * 1000000 + 'end')", "return 2 * x"), limits=PATIENT)
    assert evaluation.rewards == (1.0,)
    assert len(evaluation.artifacts["stdout"]) == 4096
    assert evaluation.artifacts["stdout"].endswith("end\n")


def test_broken_standard_streams_do_not_matter(attack):
    top = "import os, sys\nsys.stdout = sys.stderr = None\nos.close(1)\nos.close(2)"
    assert attack(in_solve("return 2 * x", top=top), limits=PATIENT).rewards == (1.0,)


def frame(body: str) -> str:
    return f"os.write(3, len({body!r}).to_bytes(4, 'big') + {body!r}.encode())"


def test_the_first_frame_of_a_question_wins(attack):
    top = "import os, json\n"
    forged = (
        "os.write(3, (lambda b: len(b).to_bytes(4, 'big') + b)(json.dumps({'index': x, 'value': 'forged'}).encode()))"
    )
    assert attack(in_solve(forged, "return 2 * x", top=top), limits=PATIENT).rewards == (0.0,)


def test_frames_for_no_question_are_dropped(attack):
    top = "import os\n"
    lines = [frame(f'{{"index": {index}, "value": 0}}') for index in (99, -2, "true", '"0"', "0.0", "null", "[]")]
    assert attack(in_solve(*lines, frame("{}"), "return 2 * x", top=top), limits=PATIENT).rewards == (1.0,)


FRAMES = {
    "not json": frame("[[["),
    "nan": frame('{"index": 0, "value": NaN}'),
    "infinite": frame('{"index": 0, "value": 1e999}'),
    "deep": frame('{"index": 0, "value": ' + "[" * 5000 + "]" * 5000 + "}"),
    "long header": "os.write(3, b'\\xff' * 4)",
    "unknown refusal": frame('{"index": 0, "error": "nothing", "detail": ""}'),
    "refusal without text": frame('{"index": 0, "error": "raised", "detail": 3}'),
    "answer without value": frame('{"index": 0}'),
    "value for the loading": frame('{"index": -1, "value": 1}'),
    "a flood of frames": "while True: " + frame("{}"),
    "rewards": frame('{"rewards": {"score": 1e9}}') + "\nos._exit(0)",
}


@pytest.mark.parametrize("lines", FRAMES.values(), ids=FRAMES)
def test_hostile_frames_are_refused(attack, lines):
    failure = attack(f"import os\n{lines}\ndef solve(x):\n    return 2 * x\n", limits=PATIENT).failure
    assert failure is not None
    assert failure.kind in {FailureKind.INVALID_OUTPUT, FailureKind.CRASHED}


def test_half_a_frame_is_no_answer(attack):
    failure = attack("import os, time\nos.write(3, b'\\0\\0\\1\\0{')\ntime.sleep(30)").failure
    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT


# Unlike that of another test worker, which runs the same attacks at the same time.
MARK = f"98765.{os.getpid()}"
SLEEP = f"['sleep', '{MARK}']"
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
def test_daemons_end_with_their_evaluation(attack, marked, daemon, ending):
    attack(f"import os, subprocess\n{daemon}    {ending}\n")
    assert marked(MARK.encode()) == []


@pytest.mark.parametrize("broker", ["unsafe"], indirect=True)
def test_a_tree_of_children_ends_with_its_evaluation(attack):
    program = in_solve(
        "for _ in range(5): os.fork()", "os.setsid() if os.getpgid(0) != os.getpid() else 0", LOOP, top="import os"
    )
    failure = attack(program).failure
    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT


@pytest.mark.parametrize("broker", ["unsafe"], indirect=True)
def test_files_are_removed_however_they_were_made(attack):
    top = "import os\n"
    program = in_solve(
        "os.makedirs('a/b')",
        "open('a/b/c', 'w').write('x')",
        "os.symlink('/etc', 'a/link')",
        "os.chmod('a/b', 0)",
        "here = os.open('.', 0)",
        "for _ in range(1500): os.mkdir('deep'); os.chdir('deep')",
        "os.fchdir(here)",
        "return 2 * x",
        top=top,
    )
    assert attack(program, cases=[{"input": [1], "expected": 2}], limits=PATIENT).rewards == (1.0,)
    assert Path("/etc/passwd").exists()


def test_a_bomb_of_json_in_an_answer_is_refused(attack):
    failure = attack(in_solve("for _ in range(900): x = [x]", "return x"), limits=PATIENT).failure
    assert failure is not None
    assert failure.kind is FailureKind.INVALID_OUTPUT


def test_measures_are_the_supervisors(attack):
    top = "import resource, time\nresource.getrusage = time.process_time = time.monotonic = lambda *a: 0\n"
    begun, used = time.monotonic(), time.process_time()
    for _ in range(2_000_000):  # the same work as the candidate's, in processor time: waiting for a core must not count
        pass
    one_case = time.process_time() - used
    evaluation = attack(in_solve("for _ in range(2_000_000): pass", "return 2 * x", top=top), limits=PATIENT)
    assert evaluation.rewards == (1.0,)
    assert one_case < evaluation.cpu_s < 20
    assert evaluation.cpu_s / 4 < evaluation.wall_s <= time.monotonic() - begun
