"""Texts of hostile programs: what they do, and how they tell whether they could."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from speciate.domain.candidate import Evaluation
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


_EVALUATED: dict[tuple[Arena, str], dict[str, Evaluation]] = {}


def attacks(arena: Arena, programs: Mapping[str, str], **fields: Any) -> dict[str, Evaluation]:
    """Attack with all programs of a table as one batch, once per arena; return their evaluations by name.

    A batch costs a third of the processor time of as many single attacks.
    """
    key = (arena, repr((programs, fields)))
    if key not in _EVALUATED:
        _EVALUATED[key] = dict(zip(programs, arena.attacks([*programs.values()], **fields), strict=True))
    return _EVALUATED[key]


def attempt(arena: Arena, body: str, there: dict[str, Any]) -> str:
    """Run lines that want to reach something beyond the walls.

    Args:
        arena: Where.
        body: Lines of Python; they are refused when they raise ``OSError``, and fail the test with any other exception.
        there: What they find as ``there``: names of what is beyond.

    Returns:
        ``held`` or ``breached``, or what failed.
    """
    return _verdict(arena.attack(_attempting(body), cases=_expecting_a_wall(there)))


def attempts(arena: Arena, bodies: Mapping[str, str], there: dict[str, Any]) -> dict[str, str]:
    """Make all attempts of a table as one batch, once per arena; return their verdicts by name."""
    programs = {name: _attempting(body) for name, body in bodies.items()}
    return {name: _verdict(each) for name, each in attacks(arena, programs, cases=_expecting_a_wall(there)).items()}


def _attempting(body: str) -> str:
    return _TOOLS.format(body="".join(f"    {line}\n" for line in body.splitlines()))


def _expecting_a_wall(there: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"input": [there], "expected": HELD}]


def _verdict(evaluation: Evaluation) -> str:
    if evaluation.rewards == (1.0,):
        return HELD
    breached = evaluation.rewards is not None and f'got "{BREACHED}"' in evaluation.artifacts["cases"]
    return BREACHED if breached else str(evaluation)


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
