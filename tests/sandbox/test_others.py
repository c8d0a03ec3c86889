"""Nothing of another process can be changed or looked into: no trace, memory, priority, limit, owner or input."""

import pytest

from tests.sandbox.arenas import make_problem
from tests.sandbox.programs import BREACHED, HELD, attempt, attempts, for_each, in_solve, number
from tests.sandbox.surroundings import victim

# ``pid`` is another process.
TOUCHING = {
    "handle": "os.pidfd_open(pid)",
    "trace": f"call({number(101, 117)}, 0x4206, pid, 0, -1)",
    "read its memory": f"call({number(310, 270)}, pid, 0, 0, 0, 0, 0)",
    "write its memory": f"call({number(311, 271)}, pid, 0, 0, 0, 0, 0)",
    "open its memory": "open(f'/proc/{pid}/mem', 'r+b')",
    "priority": "os.setpriority(os.PRIO_PROCESS, pid, 19)",
    "processors": "os.sched_setaffinity(pid, os.sched_getaffinity(pid))",
    "scheduler": "os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))",
    "limits": "resource.prlimit(pid, resource.RLIMIT_NOFILE)",
    "group": f"call({number(109, 154)}, pid, 0)",
    "compare": f"call({number(312, 272)}, pid, os.getpid(), 0, 0, 0)",
    "signal to its group": "os.killpg(os.getpgid(pid), 0)",
    "signal to its thread": f"call({number(200, 130)}, pid, 0)",
    "signal with a value, to its thread": f"call({number(297, 240)}, pid, pid, 0, (ctypes.c_int * 32)(0, 0, -1))",
    "signals of a descriptor": "import fcntl\nfcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, pid)",
    "signals of a descriptor, by ioctl": f"call({number(16, 29)}, os.pipe()[0], 0x8901, (ctypes.c_int * 1)(pid))",
}


def test_no_other_process_can_be_touched(arena, outside):
    """Neither the worker, the zygote, a process of the same user, nor the supervisor."""
    others = "(there['worker'], there['zygote'], there['victim'], os.getppid())"
    bodies = {name: for_each("pid", others, body) for name, body in TOUCHING.items()}
    with victim(arena.user) as other:
        verdicts = attempts(arena, bodies, outside.seen_by(arena) | {"victim": other.pid})
        alive = other.poll() is None
        other.kill()
    assert alive
    assert verdicts == dict.fromkeys(TOUCHING, HELD)


@pytest.mark.parametrize("body", TOUCHING.values(), ids=TOUCHING)
def test_without_walls_it_can_be(unsafe, unsafe_outside, body):
    with victim(unsafe.user) as other:
        found = attempt(unsafe, f"pid = {other.pid}\n{body}", unsafe_outside.seen_by(unsafe))
        other.kill()
    assert found == BREACHED


OWN = {
    "signals of the channel": "import fcntl\nfcntl.fcntl(3, 10, 9)",
    "owner of the channel": "import fcntl, struct\nfcntl.fcntl(3, 15, struct.pack('ii', 1, os.getpid()))",
    "typing for another terminal": f"call({number(16, 29)}, 0, 0x5412, b'x')",
    "taking a terminal": f"call({number(16, 29)}, 0, 0x540E, 0)",
    "being traced": f"call({number(101, 117)}, 0x4206, -5, 0, 0)",
    "being seen by debuggers": "if libc.prctl(4, 1, 0, 0, 0): raise OSError",
    "outliving the supervisor": "if libc.prctl(1, 0, 0, 0, 0): raise OSError",
    "adopting": "if libc.prctl(36, 1, 0, 0, 0): raise OSError",
    "own priority": "os.nice(0)",
    "own scheduler": "os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))",
    "own thread, by its number alone": f"call({number(200, 130)}, os.getpid(), 0)",
    "own group": "os.killpg(0, 0)",
    "a lock that others can ask for": "import fcntl\nfcntl.lockf(open(os.__file__), fcntl.LOCK_SH)",
    "a lock of what is open": (
        "import fcntl, struct\n"
        "fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), 37, struct.pack('hhqqi4x', fcntl.F_RDLCK, 0, 1, 1, 0))"
    ),
    "asking for locks": (
        "import fcntl, struct\n"
        "fcntl.fcntl(os.open(os.__file__, os.O_RDONLY), fcntl.F_GETLK, struct.pack('hhqqi4x', 1, 0, 1, 1, 0))"
    ),
    "a lock of the whole file": "import fcntl\nfcntl.flock(open(os.__file__), fcntl.LOCK_SH)",
}


def test_no_property_of_its_own_reaches_others(arena, outside):
    assert attempts(arena, OWN, outside.seen_by(arena)) == dict.fromkeys(OWN, HELD)


@pytest.mark.parametrize("body", OWN.values(), ids=OWN)
def test_without_walls_it_does(unsafe, unsafe_outside, body):
    assert attempt(unsafe, body, unsafe_outside.seen_by(unsafe)) == BREACHED


def test_a_candidate_cannot_kill_another_that_runs(arena):
    target = "import time\ndef solve(x):\n    time.sleep(0.6)\n    return 2 * x\n"
    search = in_solve(
        "until = time.monotonic() + 0.5",
        "while time.monotonic() < until:",
        "    for pid in range(max(2, os.getpid() - 60), os.getpid() + 60):",
        "        if pid != os.getpid():",
        "            try: os.kill(pid, 9)",
        "            except OSError: pass",
        "return 2 * x",
        top="import os, time",
    )
    one = [{"input": [1], "expected": 2}]
    begun = [arena.begin(make_problem(cases=one), [program] * 2) for program in (target, search, target)]
    assert [[e.rewards for e in arena.collect(each)] for each in begun] == [[(1.0,)] * 2] * 3
