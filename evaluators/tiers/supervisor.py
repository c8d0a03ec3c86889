"""The worker's end of a contained process and its supervisor."""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from evaluators.channel import ENVELOPE_BYTES
from evaluators.contained.direct_channel import CLOCK_BYTES
from evaluators.contained.meter import Exceeded
from evaluators.contained.requests import (
    ERROR,
    EXIT,
    HELLO,
    READY,
    STOP,
    SpawnRequest,
)
from evaluators.contained.unsafe import orphaned_folders, remove
from evaluators.limits import rlimits, tasks
from evaluators.tiers.cgroup import ControlGroup, delegated
from evaluators.tiers.sandbox import ProcessRole, ProcessSpec, ResourceUsage
from evaluators.tiers.scheduling import SchedulingDelay

AUTHOR_FRAME_BYTES = 64 << 20
"""Longest message of an author's script, which may hand large inputs to a candidate."""

CREDENTIALS = struct.Struct("3i")  # process, user and group id (man 7 unix)
_REPORT_BYTES = 1 << 13
_REMOVE_S = 60.0  # a candidate may leave thousands of files on a slow disk
_END_S = 1.0
_SO_PASSRIGHTS = 83  # since Linux 6.16: 0 refuses descriptors that the other end attaches


class ContainedProcess:
    """A ``SandboxedProcess`` with its supervisor, which ends when the worker closes the connection or dies."""

    def __init__(
        self, requests: socket.socket, zygote: int, needs: ProcessSpec, folder: str, ended: Callable[[], None]
    ) -> None:
        """Request a process from a zygote; ``ended`` is called after it was stopped."""
        self._zygote, self._needs, self._ended = zygote, needs, ended
        self._pid = self._supervisor = 0
        self._has_namespace = False  # whose processes end with the supervisor
        self._handle: int | None = None  # the supervisor's id may become another process's
        self._folder = ""
        self._usage: ResourceUsage | None = None
        self._group: ControlGroup | None = None
        self.waiting = SchedulingDelay(0)
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as theirs:
            self._connection, control = _pair(undo, theirs, socket.SOCK_SEQPACKET)
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self.channel, channel = _pair(undo, theirs, socket.SOCK_STREAM)
            with contextlib.suppress(OSError):  # older kernels drop descriptors that the reader has no room for
                self.channel.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
            (out, their_out), (err, their_err) = _pipe(undo, theirs), _pipe(undo, theirs)
            self.logs: Mapping[str, int] = {"stdout": out, "stderr": err}
            fds = [control.fileno(), their_out, their_err, channel.fileno()]
            if (parent := delegated()) is not None:
                self._group = ControlGroup(parent, needs)
                undo.callback(self._group.remove)
                theirs.callback(self._group.entered)
                fds.append(self._group.members)
            socket.send_fds(requests, [_order(needs, folder).encode()], fds, socket.MSG_NOSIGNAL)
            undo.pop_all()
        for fd in self.logs.values():
            os.set_blocking(fd, False)
        self._poll = select.poll()
        self._poll.register(self._connection, select.POLLIN)

    def wait_ready(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self._pid and self._usage is None:
            if not self._take(*self._receive(deadline)):
                return False
        # The supervisor's next message is the exit report.
        return self._usage is None and not self._readable(0)

    def stop(self, *, grace_s: float = 0.0) -> ResourceUsage:
        if self._usage is None:
            if grace_s:
                self._readable(grace_s)
            with contextlib.suppress(OSError):  # it is gone
                self._connection.send(STOP, socket.MSG_NOSIGNAL)
            with contextlib.suppress(OSError):
                deadline = time.monotonic() + _REMOVE_S
                while self._usage is None and self._take(*self._receive(deadline)):
                    pass
        if self._usage is None:
            if self._handle is not None:
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            self._sweep()
        usage = self._usage or ResourceUsage(None, ended=False)
        if self._group is not None:
            usage = replace(usage, cpu_s=max(usage.cpu_s, self._group.cpu_s()))
        self.abandon()
        return usage

    def abandon(self) -> None:
        if self._connection.fileno() < 0:
            return
        # Not only close(): a worker that was forked meanwhile may hold a copy of this end.
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + _END_S
        while self._usage is None and self._receive(deadline)[0]:
            pass  # the connection ends with the supervisor: an evaluation leaves nothing running
        self._connection.close()
        if self._handle is not None:
            os.close(self._handle)
        if self._group is not None:
            self._group.remove()
        self._ended()

    def close(self) -> None:
        self.channel.close()
        self.waiting.close()
        for fd in self.logs.values():
            os.close(fd)

    def _readable(self, timeout_s: float) -> bool:
        return bool(self._poll.poll(math.ceil(max(timeout_s, 0.0) * 1000)))

    def _receive(self, deadline: float) -> tuple[bytes, int]:
        """Return the next message and its sender's process id; no bytes if it has ended or the time is up."""
        if not self._readable(deadline - time.monotonic()):
            return b"", 0
        for _ in range(2):
            try:
                data, credentials, _, _ = self._connection.recvmsg(_REPORT_BYTES, socket.CMSG_SPACE(CREDENTIALS.size))
            except ConnectionResetError:
                continue  # it ended before it read our last message; what it had sent before can still be read
            except OSError:
                break
            return data, sender(credentials)
        return b"", 0

    def _take(self, data: bytes, pid: int) -> bool:
        """Note what a message reports; False if there is none, ``OSError`` if it is an error."""
        match data[:1]:
            case b"":
                return False
            case kind if kind == READY:
                self._pid, self._folder = pid, os.fsdecode(data[1:])
                cores = min(self._needs.limits.cores, len(os.sched_getaffinity(0)))
                group_s = None if self._group is None else self._group.cpu_s
                self.waiting = SchedulingDelay(pid, self._supervisor, cores, group_s)
            case kind if kind == EXIT:
                self._usage = _exit(data[1:])
            case kind if kind == HELLO:
                self._supervisor, self._has_namespace = pid, data[1:] == b"1"
                if not self._has_namespace:
                    with contextlib.suppress(OSError):  # it has ended
                        self._handle = os.pidfd_open(pid)
            case kind if kind == ERROR:
                raise OSError(data[1:].decode("utf-8", "replace"))
        return True

    def _sweep(self) -> None:
        """Clean up for a killed supervisor in tiers without namespaces."""
        if self._has_namespace:
            return
        if self._pid:
            # The number of a group is free again only after the last of its processes.
            if not self.waiting.replaced:
                with contextlib.suppress(OSError):
                    os.kill(-self._pid, signal.SIGKILL)
            if self._folder:
                remove(self._folder)
            return
        # Killed before the process was ready, which would have named its folder.
        for left in orphaned_folders(self._zygote):
            remove(left)


def _exit(report: bytes) -> ResourceUsage:
    usage = json.loads(report)
    exceeded, memory_bytes = Exceeded(usage["exceeded"]), usage["memory_kib"] * 1024
    return ResourceUsage(usage["status"], usage["ended"], usage["cpu_s"], memory_bytes, exceeded)


def sender(credentials: list[tuple[int, int, bytes]]) -> int:
    """Return the sender's process id from the kernel: inside a namespace, a process knows only its inner id."""
    return int(CREDENTIALS.unpack(credentials[0][2])[0]) if credentials else 0


def _order(needs: ProcessSpec, folder: str) -> SpawnRequest:
    limits = needs.limits
    longest = AUTHOR_FRAME_BYTES if needs.role is ProcessRole.AUTHOR else limits.output_bytes
    return SpawnRequest(
        role=needs.role.value,
        frame_bytes=longest + ENVELOPE_BYTES // 2,
        # Authors serve many evaluations, and the command role limits its commands itself.
        rlimits=rlimits(
            limits,
            cpu=needs.role in (ProcessRole.CANDIDATE, ProcessRole.IN_PROCESS),
            processes=needs.syscall_policy.starts_processes,
            file_bytes=CLOCK_BYTES if needs.role is ProcessRole.AUTHOR else 0,
        ),
        cpu_s=math.ceil(needs.cpu_s),
        memory_bytes=limits.memory_bytes,
        tasks=tasks(limits, processes=needs.syscall_policy.starts_processes),
        tmp_bytes=limits.tmp_bytes,
        tmp_files=limits.tmp_files,
        syscall_policy=needs.syscall_policy,
        folder=folder,
    )


def _pair(
    ours: contextlib.ExitStack, theirs: contextlib.ExitStack, kind: socket.SocketKind
) -> tuple[socket.socket, socket.socket]:
    here, there = socket.socketpair(socket.AF_UNIX, kind)
    return ours.enter_context(here), theirs.enter_context(there)


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    here, there = os.pipe()
    ours.callback(os.close, here)
    theirs.callback(os.close, there)
    return here, there
