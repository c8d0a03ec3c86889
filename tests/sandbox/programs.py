"""Texts of hostile programs: what they do, and how they tell whether they could."""

from __future__ import annotations

import os
from typing import Any

from tests.sandbox.arenas import Arena

HELD, BREACHED = "held", "breached"

_TOOLS = """
import ctypes, errno, os, resource, signal, socket, subprocess, sys, threading, time

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

def call(number, *arguments):
    # Whatever else the kernel says of senseless arguments: the call has reached it.
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    if result < 0 and ctypes.get_errno() in (errno.EPERM, errno.EACCES, errno.ENOSYS):
        raise OSError(ctypes.get_errno(), "refused")
    return result

def attempt(there):
{body}

def solve(there):
    try:
        attempt(there)
    except OSError:
        return "held"
    return "breached"
"""


def in_solve(*lines: str, top: str = "") -> str:
    """Return a program whose ``solve(x)`` runs these lines."""
    return top + "\ndef solve(x):\n" + "".join(f"    {line}\n" for line in lines)


def attempt(arena: Arena, body: str, there: dict[str, Any]) -> str:
    """Run lines that want to reach something beyond the walls.

    Args:
        arena: Where.
        body: Lines of Python; they are refused when they raise ``OSError``, and fail the test with any other exception.
        there: What they find as ``there``: names of what is beyond.

    Returns:
        ``held`` or ``breached``.
    """
    program = _TOOLS.format(body="".join(f"    {line}\n" for line in body.splitlines()))
    evaluation = arena.attack(program, cases=[{"input": [there], "expected": HELD}])
    assert evaluation.rewards is not None, evaluation
    if evaluation.rewards == (1.0,):
        return HELD
    assert f'got "{BREACHED}"' in evaluation.artifacts["cases"], evaluation
    return BREACHED


def for_each(name: str, values: str, body: str) -> str:
    """Return lines that try others for each value, and are refused only when all of them are."""
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"for {name} in {values}:\n    try:\n{lines}    except OSError: continue\n    return\nraise OSError"


def answer(arena: Arena, program: str, *arguments: Any, **fields: Any) -> str:
    """Return what ``solve`` of a program answers, as the JSON text that people are shown."""
    cases = [{"input": [*arguments], "expected": "something else"}]
    evaluation = arena.attack(program, cases=cases, **fields)
    assert evaluation.rewards is not None, evaluation
    return evaluation.artifacts["cases"].partition(" got ")[2]


def number(x86_64: int, aarch64: int) -> int:
    """Return the number of a system call on this machine."""
    return {"x86_64": x86_64, "aarch64": aarch64}[os.uname().machine]
