"""End a contained process with everything that it started."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import time

from . import kernel
from .proc import ProcFolder
from .requests import EXIT, REPORT

_report = (ctypes.c_char * REPORT.size)()
_status = ctypes.addressof(_report) + 2  # after ``EXIT`` and the flags
_usage = _status + 4


def sweep(pid: int, seen: tuple[float, int]) -> bytes:
    """Kill a child with everything that it started, and reap them all; ``report`` then tells what the child used.

    Returns as JSON what processes were ``seen`` to use (CPU seconds, KiB) and the usage of what the child left running;
    empty if nothing was seen and it left nothing.
    """
    first = os.getpid() == 1  # init of a process namespace: it adopts whatever the child leaves
    for victim in (pid,) if first else (-pid, pid):
        _kill(victim)
    kernel.wait(pid, _status, _usage)
    return b"" if kernel.childless() and not seen[1] else _sweep_others(first, seen)


def report(flags: int) -> ctypes.Array[ctypes.c_char]:
    """Return the report of the last child's exit, with the numbers that the kernel wrote there."""
    _report[0], _report[1] = EXIT, bytes((flags,))
    return _report


def forget() -> None:
    """Clear the report: the next process is a copy of this one, and could read it."""
    ctypes.memset(_report, 0, REPORT.size)


def _sweep_others(first: bool, seen: tuple[float, int]) -> bytes:
    cpu_s, memory = 0.0, 0
    while True:
        try:
            reaped, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return json.dumps({"cpu_s": cpu_s, "memory_kib": memory, "seen_s": seen[0], "seen_kib": seen[1]}).encode()
        if reaped:
            cpu_s += usage.ru_utime + usage.ru_stime
            memory = max(memory, usage.ru_maxrss)
            continue
        for stray in (-1,) if first else map(int, ProcFolder().descendants(str(os.getpid()))):
            _kill(stray)
        time.sleep(0.001)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # gone, or a zombie that cannot receive signals
