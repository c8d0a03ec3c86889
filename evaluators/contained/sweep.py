"""End a contained process with everything that it started."""

from __future__ import annotations

import os
import signal
import time

from .proc import ProcFolder


def sweep(pid: int, seen: tuple[float, int]) -> dict[str, float]:
    """Kill a child with everything that it started, reap them all, and return its wait status and their usage.

    What processes were ``seen`` to use (CPU seconds, KiB) counts if the kernel counts less: a program can make it drop
    what its children used.
    """
    first = os.getpid() == 1  # init of a process namespace: it adopts whatever the child leaves
    for victim in (pid,) if first else (-pid, pid):
        _kill(victim)
    _, status, usage = os.wait4(pid, 0)
    cpu_s, memory_kib = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
    while True:
        try:
            reaped, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            return {"status": status, "cpu_s": max(cpu_s, seen[0]), "memory_kib": max(memory_kib, seen[1])}
        if reaped:
            cpu_s += usage.ru_utime + usage.ru_stime
            memory_kib = max(memory_kib, usage.ru_maxrss)
            continue
        for stray in (-1,) if first else map(int, ProcFolder().descendants(str(os.getpid()))):
            _kill(stray)
        time.sleep(0.001)


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # gone, or a zombie that cannot receive signals
