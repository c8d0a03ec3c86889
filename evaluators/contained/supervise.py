"""Supervise contained processes, one after another: start each, watch it, clean up after it and report.

The zygote forks a supervisor, which serves one batch and one kind of process. It forks each contained process before
that reads anything of a candidate, and the next one when nothing of the last is left, in its own memory either. When
the worker closes the connection or dies, the supervisor kills all started processes and removes all written files.

Each fork makes the kernel copy every page that the supervisor writes to afterwards, so it does little.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
from _signal import SIG_DFL, SIGCHLD, SIGINT, signal  # type: ignore[import-not-found]  # without enumerations
from typing import NoReturn

from . import kernel
from .bounds import Bounds
from .enter import CHANNEL_FD, CONTROL_FD, Tier, enter
from .meter import Exceeded
from .requests import ENDED, ERROR, FLAGS, HELLO, RETIRED, STOP, SpawnRequest
from .sweep import forget, report, sweep

_MESSAGE_BYTES, _FDS = 16, 4
_WATCH_MS = 20


def supervise(tier: Tier, order: SpawnRequest, bounds: Bounds, control: int) -> NoReturn:
    code = 1
    try:
        connection = _keep_only(control)
        signal(SIGCHLD, SIG_DFL)
        if order.syscall_policy.starts_processes:
            # From inside its namespace only signals that it handles reach it, and of those Python handles this one.
            signal(SIGINT, SIG_DFL)
        os.umask(0o077)
        sys.argv[:] = [order.role]
        try:
            tier.setup_supervisor()
            _send(connection, HELLO + b"%d" % os.getpid())
            _serve(tier, order, bounds, connection)
            code = 0
        except BaseException as error:  # noqa: BLE001  # reported to the worker
            _send(connection, ERROR + f"{type(error).__name__}: {error}".encode("utf-8", "replace"))
    finally:
        os._exit(code)  # whatever happens, this fork must never go on as the zygote


def _keep_only(control: int) -> socket.socket:
    """Close the zygote's descriptors and move the connection to its number above those of a contained process."""
    control = kernel.out_of_the_way(control)
    os.closerange(1, kernel.LOW_FDS)
    os.dup2(control, CONTROL_FD, inheritable=False)
    os.close(control)
    return socket.socket(fileno=CONTROL_FD)


def _serve(tier: Tier, order: SpawnRequest, bounds: Bounds, connection: socket.socket) -> None:
    while True:
        data, fds, _, _ = socket.recv_fds(connection, _MESSAGE_BYTES, _FDS)
        if not data:
            return
        if data == STOP:
            continue  # the process had ended already
        if fds[:CHANNEL_FD] != [*range(1, CONTROL_FD)]:
            raise OSError(f"descriptors of a process at {fds}")
        cgroup = fds[CHANNEL_FD:]
        # Opened for each: flags and locks on one open file would be visible to every other candidate.
        stdin = os.open(os.devnull, os.O_RDONLY)
        os.dup2(stdin, 0)
        os.close(stdin)
        os.set_inheritable(CHANNEL_FD, False)
        tier.setup_candidate(order)
        pid = os.fork()
        if pid == 0:
            enter(tier, order, bounds.rlimits, cgroup)
        os.closerange(1, CONTROL_FD)
        for fd in cgroup:
            os.close(fd)
        flags = _wait(pid, bounds, grouped=bool(cgroup))
        others = sweep(pid, bounds.seen)
        tier.cleanup()
        if others or not tier.reusable:
            flags |= RETIRED
        with contextlib.suppress(OSError):  # the worker is gone; clean up anyway
            connection.send(bytes(report(flags)) + others if others else report(flags))
        forget()
        if flags & RETIRED:
            return
        del flags, others  # the next process could read how this one ended


def _send(connection: socket.socket, message: bytes) -> None:
    with contextlib.suppress(OSError):  # the worker is gone; clean up anyway
        connection.send(message)


def _wait(pid: int, bounds: Bounds, *, grouped: bool) -> int:
    """Wait until the process ends, exceeds a limit or is stopped; ``grouped`` if a control group limits its memory."""
    pidfd = os.pidfd_open(pid)
    flags = 0
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.register(CONTROL_FD, select.POLLIN)
        every_ms = _WATCH_MS if bounds.watched(memory=not grouped) else None
        while not (ready := poll.poll(every_ms)):
            flags = RETIRED  # it has looked at the process, so no later one may look at its memory
            if (exceeded := bounds.exceeded(memory=not grouped)) is not Exceeded.NOTHING:
                return flags | FLAGS[exceeded]
        return flags | ENDED if ready[0][0] == pidfd else flags
    finally:
        os.close(pidfd)
