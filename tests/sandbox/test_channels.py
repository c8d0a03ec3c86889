"""Two candidates at the same time have no signal between them through what both can read."""

import pytest

from tests.sandbox.arenas import PATIENT, make_problem
from tests.sandbox.programs import answer, in_solve

# A page of the C library is mapped by every candidate from the same file.
_FUTEX = """
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
page = ctypes.cast(libc.getpid, ctypes.c_void_p).value & ~4095
word = ctypes.c_uint32.from_address(page).value
class Time(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("ns", ctypes.c_long)]
def futex(op, value, seconds=0.0):
    limit = Time(int(seconds), int(seconds % 1 * 1e9))
    found = libc.syscall(202 if os.uname().machine == "x86_64" else 98, ctypes.c_void_p(page), op, value,
                         ctypes.byref(limit), None, ctypes.c_uint32(0xFFFFFFFF))
    return found if found >= 0 else -ctypes.get_errno()
"""
_WAIT = _FUTEX + in_solve("return futex(0, word, 2.0) == 0")
# Operation 1 is allowed: libstdc++ needs it, and the end of a thread is such a wake, too.
_WAKE = _FUTEX + in_solve(
    "end = time.time() + 1.5", "while time.time() < end: futex(10, 1), futex(3, 1), futex(5, 1)", "return False"
)


def test_a_futex_on_a_common_page_wakes_nobody_else(arena):
    problem = make_problem(cases=[{"input": [0], "expected": False}], limits=PATIENT)
    number = arena.begin(problem, [_WAIT])
    (waking,) = arena.evaluate(problem, [_WAKE])
    (waiting,) = arena.collect(number)
    assert (waking.rewards, waiting.rewards) == ((1.0,), (1.0,)), (waking, waiting)


@pytest.mark.parametrize("op", [3, 4, 5, 10], ids=["requeue", "cmp_requeue", "wake_op", "wake_bitset"])
def test_shared_wakes_are_refused_and_private_ones_work(arena, op):
    program = _FUTEX + in_solve(f"return [futex({op}, 1), futex({op} | 128, 1) != -1]")
    assert answer(arena, program, 0) == "[-1, true]"


def test_the_wake_of_one_time_initialisation_works(arena):
    assert answer(arena, _FUTEX + in_solve("return futex(1, 1)"), 0) == "0"


def test_threads_join_and_numpy_computes_in_parallel(arena):
    program = """
import threading, numpy, ctypes
def solve(n):
    found = []
    threads = [threading.Thread(target=lambda: found.append(float(numpy.ones((300, 300)).dot(numpy.ones((300, 300))).sum())))
               for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    libc = ctypes.CDLL(None)
    routine = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: None)
    made = ctypes.c_ulong()
    joined = [libc.pthread_create(ctypes.byref(made), None, routine, None) or libc.pthread_join(made, None)
              for _ in range(20)]
    return [found == [2.7e7] * 4, sum(joined)]
"""
    assert answer(arena, program, 0) == "[true, 0]"


def test_clocks_of_other_processes_are_refused_and_own_ones_work(arena):
    program = """
import os, time
def solve(x):
    def seen(clock):
        try: return time.clock_gettime(clock) >= 0
        except OSError as error: return error.strerror
    others = {seen((~pid << 3) | 2) for pid in (1, 2, os.getppid() or 1)}
    own = [seen(clock) for clock in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_PROCESS_CPUTIME_ID,
                                     time.CLOCK_THREAD_CPUTIME_ID, time.CLOCK_BOOTTIME, (~0 << 3) | 2)]
    return [sorted(map(str, others)), own == [True] * 6, time.process_time() >= 0, time.thread_time() >= 0]
"""
    assert answer(arena, program, 0) == '[["Operation not permitted"], true, true, true]'
