"""Distinguish a living process from a dead one, a zombie, and a later one with the same process id."""

from pathlib import Path


def birth(pid: int) -> str | None:
    """Return the kernel's start time of a process; None if it has ended, even before it is reaped."""
    fields = _fields(pid)
    return None if not fields or fields[1] in "ZX" else fields[20]


def runs(pid: int, program: str) -> bool:
    """Return True if the process lives and runs the program."""
    return birth(pid) is not None and _fields(pid)[:1] == [program]


def _fields(pid: int) -> list[str]:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return []
    # The program's name in parentheses may contain spaces and parentheses: split after the last parenthesis.
    head, _, tail = text.rpartition(")")
    return [head.partition("(")[2], *tail.split()]
