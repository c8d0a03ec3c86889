"""Supervise one contained process: start it, watch it, clean up after it and report.

The zygote forks a supervisor for each contained process, before that reads anything of a candidate. When the worker
closes the connection or dies, the supervisor kills all started processes and removes all written files.

Forking makes the kernel copy every page that the supervisor writes to afterwards, so it does little.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
from _signal import SIG_DFL, SIGCHLD, SIGINT, signal  # type: ignore[import-not-found]  # without enumerations
from collections.abc import Sequence
from typing import NoReturn

from . import kernel
from .bounds import Bounds
from .enter import CHANNEL_FD, CONTROL_FD, Tier, enter
from .meter import Exceeded
from .requests import ERROR, EXIT, HELLO, SpawnRequest
from .sweep import sweep

_WATCH_MS = 20


def supervise(tier: Tier, order: SpawnRequest, bounds: Bounds, fds: Sequence[int]) -> NoReturn:
    """Run a process with the descriptors of a request."""
    code = 1
    try:
        connection, cgroup = _keep_only(fds)
        signal(SIGCHLD, SIG_DFL)
        if order.syscall_policy.starts_processes:
            # From inside its namespace only signals that it handles reach it, and of those Python handles this one.
            signal(SIGINT, SIG_DFL)
        os.umask(0o077)
        sys.argv[:] = [order.role]
        try:
            _send(connection, HELLO + b"%d" % os.getpid())
            _run(tier, order, bounds, connection, cgroup)
            code = 0
        except BaseException as error:  # noqa: BLE001  # reported to the worker
            _send(connection, ERROR + f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
    finally:
        os._exit(code)  # whatever happens, this fork must never go on as the zygote


def _keep_only(fds: Sequence[int]) -> tuple[socket.socket, Sequence[int]]:
    """Close the zygote's descriptors and give those of the request their numbers; return the connection and the rest.

    Standard input is opened for each process: flags and locks on one open file would be visible to every other one.
    """
    control, out, err, channel, *cgroup = map(kernel.out_of_the_way, fds)
    os.closerange(0, kernel.LOW_FDS)
    os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(0, True)
    for fd, number, inheritable in (
        (out, 1, True),
        (err, 2, True),
        (channel, CHANNEL_FD, False),
        (control, CONTROL_FD, False),
    ):
        os.dup2(fd, number, inheritable=inheritable)
        os.close(fd)
    return socket.socket(fileno=CONTROL_FD), cgroup


def _run(tier: Tier, order: SpawnRequest, bounds: Bounds, connection: socket.socket, cgroup: Sequence[int]) -> None:
    tier.setup(order)
    pid = os.fork()
    if pid == 0:
        enter(tier, order, bounds.rlimits, cgroup)
    os.closerange(0, CONTROL_FD)
    for fd in cgroup:
        os.close(fd)
    ended, exceeded = _wait(pid, bounds, grouped=bool(cgroup))
    usage = sweep(pid, bounds.seen)
    tier.cleanup()
    _send(connection, EXIT + json.dumps({**usage, "ended": ended, "exceeded": exceeded.value}).encode())


def _send(connection: socket.socket, message: bytes) -> None:
    with contextlib.suppress(OSError):  # the worker is gone; clean up anyway
        connection.send(message)


def _wait(pid: int, bounds: Bounds, *, grouped: bool) -> tuple[bool, Exceeded]:
    """Wait until the process ends, exceeds a limit or is stopped; return whether it ended, and the limit.

    ``grouped`` is True if a control group limits its memory.
    """
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(CONTROL_FD, select.POLLIN)
        every_ms = _WATCH_MS if bounds.watched(memory=not grouped) else None
        while not (ready := poll.poll(every_ms)):
            if (exceeded := bounds.exceeded(memory=not grouped)) is not Exceeded.NOTHING:
                return False, exceeded
        return ready[0][0] == pidfd, Exceeded.NOTHING
    finally:
        os.close(pidfd)
