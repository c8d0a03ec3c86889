"""Supervise a contained process: start it, measure it, clean up after it and report.

The zygote forks the supervisor, which forks the candidate's process before it reads anything of a candidate. When the
broker closes the connection or dies, the supervisor kills all started processes and removes all written files.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, Protocol

from . import author, candidate, command, in_process, kernel
from .meter import STACK_BYTES, Exceeded, Footprint, Meter
from .requests import SpawnRequest
from .wire import Wire, frame

ROLES: dict[str, Callable[[Wire], None]] = {
    "candidate": candidate.serve,
    "author": author.serve,
    "command": command.serve,
    "in_process": in_process.serve,
}
"""Program of each role."""

CHANNEL_FD = 3
_WATCH_S = 0.02
_SPARE_SPACE = 64 << 30  # libraries reserve address space that they do not use; page tables of this much are small
_READY = b"+"


class Tier(Protocol):
    """Isolation of one tier, inside the sandbox.

    Attributes:
        bounds_threads: True if the kernel limits the number of threads; otherwise the supervisor counts them.
        folder: Folder that ``settle`` creates and ``tidy`` removes; the broker removes it if the supervisor was
            killed. Empty if ``settle`` creates none. Never a shared folder such as TMPDIR.
    """

    bounds_threads: bool
    folder: str

    def fork(self) -> int:
        """Fork a supervisor; returns twice, as ``os.fork`` does."""
        ...

    def settle(self, order: SpawnRequest) -> None:
        """Prepare the supervisor's environment."""
        ...

    def enclose(self, order: SpawnRequest) -> None:
        """Isolate the process that will run a candidate."""
        ...

    def tidy(self) -> None:
        """Remove files that a candidate may have left, after all its processes have ended."""
        ...


def supervise(tier: Tier, order: SpawnRequest, warm: Footprint, fds: list[int], fork: Callable[[], int]) -> NoReturn:
    """Fork the contained process and monitor it until it ends.

    Args:
        tier: Isolation to apply.
        order: Process to start.
        warm: Memory of the zygote.
        fds: Channel, control, standard output, standard error and, if any, the control group's list of processes.
        fork: Forks the contained process.
    """
    channel, control, out, err, *cgroup = fds
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in cgroup:
            os.write(fd, b"0")
            os.close(fd)
        meter = None if cgroup and tier.bounds_threads else Meter()
        tier.settle(order)
        here, there = os.pipe()
        pid = fork()
        if pid == 0:
            os.close(here)
            _contained(tier, order, warm, (channel, out, err, there))
        for fd in (there, channel, out):
            os.close(fd)
        # Runs while the other process applies its isolation.
        started = frame({"pid": pid, "supervisor": os.getpid(), "tmp": tier.folder})
        if os.read(here, 1) == _READY:
            _report(control, started)
            os.close(here)
            os.close(err)
            watch = None if meter is None else _Watch(meter, order, warm, tier, measured=not cgroup)
            _watch(tier, watch, pid, control)
            code = 0
    except BaseException as error:  # noqa: BLE001  # whatever happens, this fork must never go on as the zygote
        with contextlib.suppress(OSError):
            os.write(err, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _contained(tier: Tier, order: SpawnRequest, warm: Footprint, fds: tuple[int, ...]) -> NoReturn:
    code = 1
    try:
        serve = _enter(tier, order, warm, fds)
        serve(Wire(CHANNEL_FD, order.frame_bytes))
        code = 0
    except BaseException as error:  # noqa: BLE001  # whatever happens, this fork must never go on as the supervisor
        with contextlib.suppress(OSError):
            os.write(2, f"{type(error).__name__}: {error}\n".encode("utf-8", "replace"))
    finally:
        os._exit(code)


def _enter(tier: Tier, order: SpawnRequest, warm: Footprint, fds: tuple[int, ...]) -> Callable[[Wire], None]:
    """Drop the supervisor's resources, isolate this process, and return the program to run."""
    channel, out, err, ready = fds
    os.setpgid(0, 0)  # to kill as a group; not a session, which some kernels schedule as a group of its own
    kernel.die_with_parent()
    # Reopened: flags and locks on the zygote's open files would be visible to every other candidate.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(out, 1)
    os.dup2(err, 2)
    # The order matters: first move both kept descriptors away from each other's old numbers.
    ready, channel = _move(ready), _move(channel)
    os.dup2(channel, CHANNEL_FD, inheritable=False)
    os.dup2(ready, CHANNEL_FD + 1, inheritable=False)
    os.closerange(CHANNEL_FD + 2, 1 << 16)
    os.umask(0o077)
    sys.argv[:] = [order.role]
    # A killed process loses its buffered output.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    for name, (soft, hard) in order.rlimits.items():
        _lower(getattr(resource, name), soft, hard)
    data = warm.data + order.memory_bytes + order.tasks * STACK_BYTES
    _lower(resource.RLIMIT_DATA, data, data)
    space = warm.space + order.memory_bytes + _SPARE_SPACE
    _lower(resource.RLIMIT_AS, space, space)
    tier.enclose(order)
    gc.enable()
    os.write(CHANNEL_FD + 1, _READY)
    os.close(CHANNEL_FD + 1)
    return ROLES[order.role]


def _move(fd: int) -> int:
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 64)


def _lower(which: int, soft: int, hard: int) -> None:
    ceiling = resource.getrlimit(which)[1]
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(which, (soft, hard))


class _Watch:
    """Limits that the supervisor checks itself."""

    def __init__(self, meter: Meter, order: SpawnRequest, warm: Footprint, tier: Tier, *, measured: bool) -> None:
        self._meter = meter
        self._threads = None if tier.bounds_threads else order.tasks
        self._resident = warm.resident + order.memory_bytes if measured else None

    def exceeded(self) -> Exceeded:
        """Return the limit that the process exceeds."""
        if self._threads is not None and self._meter.threads() > self._threads:
            return Exceeded.THREADS
        if self._resident is not None and self._meter.holds_more(self._resident):
            return Exceeded.MEMORY
        return Exceeded.NOTHING


def _watch(tier: Tier, watch: _Watch | None, pid: int, control: int) -> None:
    """Wait until the process ends or the broker closes the connection, sweep, and report the exit."""
    exceeded = _wait(pid, control, watch)
    report = _sweep(pid) | {"exceeded": exceeded.value}
    tier.tidy()
    _report(control, frame(report))


def _report(control: int, message: bytes) -> None:
    try:
        os.write(control, message)
    except OSError:
        return  # the broker is gone; clean up anyway


def _wait(pid: int, control: int, watch: _Watch | None) -> Exceeded:
    """Wait until the process ends or the broker closes the connection; return the limit that it exceeded."""
    pidfd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.register(control, select.POLLIN)
    while not poll.poll(None if watch is None else _WATCH_S * 1000):
        if watch is not None and (exceeded := watch.exceeded()) is not Exceeded.NOTHING:
            return exceeded
    os.close(pidfd)
    return Exceeded.NOTHING


def _sweep(pid: int) -> dict[str, Any]:
    """Kill the process with everything it started and return its exit status and resource usage."""
    # WNOWAIT: the kernel cannot reuse the group id before the process is reaped.
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    first = os.getpid() == 1  # init of a process namespace: all other processes in it belong to the candidate
    for victim in (-1,) if first else (-pid, pid):
        _kill(victim)
    _, status, usage = os.wait4(pid, 0)
    cpu_s, memory = usage.ru_utime + usage.ru_stime, usage.ru_maxrss
    while True:
        try:
            reaped, _, usage = os.wait4(-1, os.WNOHANG)
        except ChildProcessError:
            break
        if reaped:
            cpu_s += usage.ru_utime + usage.ru_stime
            memory = max(memory, usage.ru_maxrss)
            continue
        for stray in (-1,) if first else _descendants():
            _kill(stray)
        time.sleep(0.001)
    return {"status": status, "ended": ended, "cpu_s": cpu_s, "memory_bytes": memory * 1024}


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return  # gone, or a zombie that cannot receive signals


def _descendants() -> list[int]:
    """Return every descendant of this process, from the parent ids in ``/proc``."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int(_stat(entry.name)[1])
            except (OSError, IndexError):
                continue  # the process ended in the meantime
            children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [os.getpid()]
    while queue:
        below = children.get(queue.pop(), [])
        found += below
        queue += below
    return found


def _stat(pid: str) -> list[bytes]:
    """Return the fields after the name in a process's ``stat``: state, parent, … (``man 5 proc_pid_stat``)."""
    return Path("/proc", pid, "stat").read_bytes().rpartition(b")")[2].split()
