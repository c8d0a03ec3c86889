"""Distinguish a living process from a dead one, a zombie, and a later one with the same process id."""

import os
from pathlib import Path


def birth(pid: int) -> str | None:
    """Return the kernel's start time of a process; None if it has ended, even before it is reaped.

    Without /proc (macOS) the result for a living process is the empty string, so a reused process id looks like the
    previous process.
    """
    fields = _fields(pid)
    if fields is None:
        return "" if not Path("/proc/self/stat").exists() and _answers(pid) else None
    state, started = fields[1], fields[20]
    return None if state in "ZX" else started


def runs(pid: int, program: str) -> bool:
    """Return True if the process lives and runs the program; without /proc, True if it lives."""
    fields = _fields(pid)
    return birth(pid) is not None and (fields is None or fields[0] == program)


def _fields(pid: int) -> list[str] | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name in parentheses may contain spaces and parentheses: split after the last parenthesis.
    head, _, tail = text.rpartition(")")
    return [head.partition("(")[2], *tail.split()]


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True
