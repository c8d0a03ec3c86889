"""Candidates start threads only, end only themselves, and leave nothing running."""

import contextlib
import os
import signal

import pytest

from speciate.domain.candidate import FailureKind
from tests.sandbox.arenas import SHORT
from tests.sandbox.programs import BREACHED, HELD, attacks, attempt, attempts, in_solve
from tests.sandbox.surroundings import victim

STARTING = {
    "fork": "if os.fork() == 0: os._exit(0)",
    "vfork": "if libc.syscall(ctypes.c_long(58 if os.uname().machine == 'x86_64' else 220), 17) < 0: raise OSError",
    "posix_spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "subprocess": "subprocess.run(['/bin/true'])",
    "exec": "os.execv('/bin/true', ['true'])",
    "system": "if os.system('true') != 0: raise OSError",
    "a shell": "os.popen('true').read()",
    "a new session": "os.setsid()",
    "a program in memory": "os.execv(f'/proc/self/fd/{os.memfd_create(\"x\")}', ['x'])",
    "a descriptor of a process": "os.pidfd_open(os.getppid())",
    "multiprocessing": "import multiprocessing\np = multiprocessing.Process(target=int)\np.start()\np.join()",
}


def test_nothing_is_started(arena):
    assert attempts(arena, STARTING, {}) == dict.fromkeys(STARTING, HELD)


def test_without_walls_processes_are_started_and_swept_away(unsafe):
    assert attempt(unsafe, STARTING["fork"], {}) == BREACHED


SIGNALS = {
    "its parent": "os.kill(os.getppid(), {signal})",
    "the first process": "os.kill(1, {signal})",
    "the worker": "os.kill(there['worker'], {signal})",
    "the zygote": "os.kill(there['zygote'], {signal})",
    "everybody": "os.kill(-1, {signal})",
    "its group": "os.kill(0, {signal})",
    "a stranger of its user": "os.kill(there['victim'], {signal})",
    "a thread of a stranger": (
        "if libc.syscall(ctypes.c_long(234 if os.uname().machine == 'x86_64' else 131), there['victim'],"
        " there['victim'], {signal}) < 0: raise OSError"
    ),
    "a stranger by a queued signal": (
        "if libc.syscall(ctypes.c_long(129 if os.uname().machine == 'x86_64' else 138), there['victim'], {signal},"
        " ctypes.create_string_buffer(128)) < 0: raise OSError"
    ),
}


HARMLESS = (0, 18, 23)
"""If a wall fell, the machine should live on."""


def test_no_other_process_is_signalled(arena):
    bodies = {f"{name} {each}": body.format(signal=each) for name, body in SIGNALS.items() for each in HARMLESS}
    with killed_afterwards(victim(arena.user)) as stranger:
        there = {"worker": arena.pid, "zygote": min(arena.zygotes()), "victim": stranger.pid}
        assert attempts(arena, bodies, there) == dict.fromkeys(bodies, HELD)
        assert stranger.poll() is None
        os.kill(arena.pid, 0)


def test_without_walls_others_are_signalled(unsafe):
    with killed_afterwards(victim(unsafe.user)) as stranger:
        there = {"victim": stranger.pid}
        assert attempt(unsafe, SIGNALS["a stranger of its user"].format(signal=9), there) == BREACHED
        assert stranger.wait() == -signal.SIGKILL


@contextlib.contextmanager
def killed_afterwards(process):
    with process:
        yield process
        process.kill()


DEATHS = {
    "kill self": (in_solve("os.kill(os.getpid(), 9)", top="import os"), {"sigkill"}),
    "exit quietly": (in_solve("os._exit(0)", top="import os"), {"exited"}),
    "exit on load": ("import os\nos._exit(0)", {"exited"}),
    "abort": (in_solve("os.abort()", top="import os"), {"sigabrt", "sigsegv"}),
    "segfault": (in_solve("ctypes.string_at(0)", top="import ctypes"), {"sigsegv"}),
    "bus error": (in_solve("signal.raise_signal(signal.SIGBUS)", top="import signal"), {"sigbus"}),
    "close every descriptor": (
        in_solve("os.closerange(0, 64)", "time.sleep(30)", top="import os, time"),
        {"closed_channel"},
    ),
}


@pytest.mark.parametrize("name", DEATHS)
def test_what_ends_its_process_has_crashed(any_arena, name):
    failure = attacks(any_arena, {each: program for each, (program, _) in DEATHS.items()})[name].failure
    assert failure is not None
    assert failure.kind is FailureKind.CRASHED
    assert failure.reason in DEATHS[name][1]


def test_many_threads_are_too_many(arena):
    program = in_solve(
        "for _ in range(5000): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
        "return 2 * x",
        top="import threading, time\nthreading.stack_size(1 << 16)",
    )
    failure = arena.attack(program, limits={"wall_s": 20, "cpu_s": 20, "threads": 8}).failure
    assert failure is not None
    assert failure.reason in {"raised", "too_many_threads"}


def test_some_threads_are_fine(arena):
    program = in_solve(
        "ts = [threading.Thread(target=time.sleep, args=(0.05,)) for _ in range(6)]",
        "[t.start() for t in ts]",
        "[t.join() for t in ts]",
        "return 2 * x",
        top="import threading, time",
    )
    assert arena.attack(program, limits={"wall_s": 20, "cpu_s": 20, "threads": 8}).rewards == (1.0,)


def test_threads_end_with_their_candidate(arena):
    program = in_solve(
        "return 2 * x",
        top="import threading\nthreading.Thread(target=eval, args=('[0 for _ in iter(int, 1)]',)).start()",
    )
    evaluation = arena.attack(program)
    assert evaluation.rewards == (1.0,)


def test_a_bomb_of_forks_does_not_go_off(arena):
    program = in_solve("while True:\n        try: os.fork()\n        except OSError: pass", top="import os")
    failure = arena.attack(program, limits=SHORT).failure
    assert failure is not None
    assert failure.kind is FailureKind.TIMEOUT
