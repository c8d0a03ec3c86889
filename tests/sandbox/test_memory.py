"""Memory, descriptors and stacks end before the machine's do."""

import pytest

from speciate.domain.candidate import FailureKind
from tests.sandbox.programs import HELD, answer, attempt, in_solve, number

TIGHT = {"wall_s": 20, "cpu_s": 20, "memory_bytes": 128 << 20, "log_bytes": 4096}

GROWING = {
    "100 GB at once": in_solve("return len(bytearray(100 << 30))"),
    "a list that grows": in_solve("a = []", "while True: a.append(bytearray(1 << 20))"),
    "a text that doubles": in_solve("s = 'x'", "while True: s += s"),
    "pages of its own": in_solve(
        "maps = []",
        "while True: maps.append(mmap.mmap(-1, 16 << 20, mmap.MAP_PRIVATE)); maps[-1].write(bytes(16 << 20))",
        top="import mmap",
    ),
    "pages of a process whose first thread has ended": in_solve(
        "threading.Thread(target=hold).start()",
        f"ctypes.CDLL(None).syscall({number(60, 93)}, 0)",
        top="import ctypes, threading, time\ndef hold():\n    time.sleep(0.2)\n    kept = b'x' * (300 << 20)\n    time.sleep(15)\n",
    ),
}


@pytest.mark.parametrize("program", GROWING.values(), ids=GROWING)
def test_memory_is_bounded(arena, program):
    failure = arena.attack(program, limits=TIGHT).failure
    assert failure is not None
    assert failure.kind is FailureKind.OUT_OF_MEMORY, failure


RESERVED = {
    "no access": "mmap.mmap(-1, 4 << 30, mmap.MAP_PRIVATE, 0)",
    "read only": "mmap.mmap(-1, 4 << 30, mmap.MAP_PRIVATE, mmap.PROT_READ)",
}


@pytest.mark.parametrize("reserve", RESERVED.values(), ids=RESERVED)
def test_reserved_address_space_is_not_memory(arena, reserve):
    program = in_solve(f"kept = {reserve}", "time.sleep(0.1)", "return 2 * x", top="import mmap, time")
    assert arena.attack(program, limits=TIGHT).rewards == (1.0,)


def test_shared_pages_of_no_file_are_refused(arena):
    """When a process drops such pages, the kernel keeps them, but the process does not hold them any more."""
    assert attempt(arena, "import mmap\nmmap.mmap(-1, 4096)", {}) == HELD


def test_page_tables_of_reserved_space_stay_small(arena):
    """A page that is only read costs no memory of its own, but each 2 MiB of such pages cost a page of page table."""
    program = in_solve(
        "kept = []",
        "try:",
        "    while True: kept.append(mmap.mmap(-1, 16 << 30, mmap.MAP_PRIVATE, mmap.PROT_READ))",
        "except OSError: return len(kept) * 16",
        top="import mmap",
    )
    assert int(answer(arena, program, 0)) <= 64


def test_the_warm_interpreter_is_not_on_the_bill(arena):
    """The smallest limit there is leaves room for what a program of numpy needs."""
    program = "import numpy as np\ndef solve(x):\n    return int(np.ones(1 << 20).sum()) * 0 + 2 * x\n"
    assert arena.attack(program, limits={**TIGHT, "memory_bytes": 64 << 20}).rewards == (1.0,)


def test_pipes_hold_little(arena):
    program = """
import os
def solve():
    held = 0
    try:
        while True:
            r, w = os.pipe()
            os.set_blocking(w, False)
            try:
                while True: held += os.write(w, bytes(1 << 20))
            except BlockingIOError: pass
    except OSError: return held
"""
    assert int(answer(arena, program)) <= 8 << 20


def test_descriptors_are_bounded(any_arena):
    program = """
def solve():
    kept = []
    try:
        while True: kept.append(open("/dev/null"))
    except OSError: return len(kept)
"""
    assert 10 < int(answer(any_arena, program)) <= 64


STACKS = {
    "recursion": in_solve("return solve(x)"),
    "recursion without a limit": in_solve("return solve(x)", top="import sys\nsys.setrecursionlimit(1 << 30)"),
    "a nest of lists": in_solve(
        "for _ in range(10 ** 6): x = [x]", "return repr(x)", top="import sys\nsys.setrecursionlimit(1 << 30)"
    ),
    "a pattern that explodes": in_solve("return re.match('(a*)*b', 'a' * 40)", top="import re"),
    "a number that explodes": in_solve("return 10 ** 10 ** 10"),
}


@pytest.mark.parametrize("program", STACKS.values(), ids=STACKS)
def test_depth_is_a_failure_of_the_program_alone(any_arena, program):
    assert any_arena.attack(program, limits={**TIGHT, "wall_s": 0.7, "cpu_s": 1}).failure is not None


def test_descriptors_in_flight_are_bounded(arena):
    program = """
import os, socket
def solve():
    here, there = socket.socketpair()
    here.setblocking(False)
    sent = 0
    try:
        for sent in range(5000): socket.send_fds(here, [b"x"], [1])
    except OSError:
        pass
    return sent
"""
    assert int(answer(arena, program)) < 1000
