"""The worker's end of a supervisor, which runs contained processes one after another."""

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
from evaluators.contained.requests import (
    ENDED,
    ERROR,
    EXIT,
    FLAGS,
    HELLO,
    READY,
    REPORT,
    RETIRED,
    START,
    STOP,
    SpawnRequest,
)
from evaluators.contained.unsafe import orphaned_folders, remove
from evaluators.limits import rlimits, tasks
from evaluators.tiers.cgroup import ControlGroup, delegated
from evaluators.tiers.sandbox import ProcessRole, ProcessSpec, ResourceUsage
from evaluators.tiers.scheduling import SchedulingDelay
from speciate.domain.limits import Limits

_AUTHOR_FRAME_BYTES = 64 << 20
"""Longest message of an author's script, which may hand large inputs to a candidate."""

CREDENTIALS = struct.Struct("3i")  # process, user and group id (man 7 unix)
_REPORT_BYTES = 1 << 13
_REMOVE_S = 60.0  # a candidate may leave thousands of files on a slow disk
_END_S = 1.0
_SO_PASSRIGHTS = 83  # since Linux 6.16: 0 refuses descriptors that the other end attaches


class Supervisor:
    """A supervisor of one batch; ``pid`` is 0 until it reports; ``apart``: it has a process namespace."""

    def __init__(
        self, requests: socket.socket, zygote: int, needs: ProcessSpec, folder: str, ended: Callable[[], None]
    ) -> None:
        """Request a supervisor from a zygote; ``ended`` is called after it was closed."""
        self.idle, self.apart = True, False
        self.pid, self.zygote, self.needs = 0, zygote, needs
        self._handle: int | None = None  # its id may become another process's
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as undo, theirs:
            undo.enter_context(self._connection)
            self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            socket.send_fds(requests, [_order(needs, folder).encode()], [theirs.fileno()], socket.MSG_NOSIGNAL)
            undo.pop_all()
        self._poll = select.poll()
        self._poll.register(self._connection, select.POLLIN)
        self._ended = ended

    @property
    def closed(self) -> bool:
        return self._connection.fileno() < 0

    def start(self, ended: Callable[[], None]) -> "ContainedProcess":
        self.idle = False
        return ContainedProcess(self, ended)

    def send(self, descriptors: list[int]) -> None:
        socket.send_fds(self._connection, [START], descriptors, socket.MSG_NOSIGNAL)

    def stop(self) -> None:
        with contextlib.suppress(OSError):  # it is gone
            self._connection.send(STOP, socket.MSG_NOSIGNAL)

    def readable(self, timeout_s: float) -> bool:
        return bool(self._poll.poll(math.ceil(max(timeout_s, 0.0) * 1000)))

    def receive(self, deadline: float) -> tuple[bytes, int]:
        """Return the next message and its sender's process id; no bytes if it has ended or the time is up."""
        if not self.readable(deadline - time.monotonic()):
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

    def know(self, pid: int, *, apart: bool) -> None:
        self.pid, self.apart = pid, apart
        if not apart:
            with contextlib.suppress(OSError):  # it has ended
                self._handle = os.pidfd_open(pid)

    def free(self, *, reusable: bool) -> None:
        self.idle = reusable
        if not reusable:
            self._release()

    def close(self, *, kill: bool = False) -> None:
        """End it with everything that it still runs, by force if ``kill``; repeated calls do nothing."""
        self.idle = False
        if self.closed:
            return
        # Not only close(): a worker that was forked meanwhile may hold a copy of this end.
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + _END_S
        while self.receive(deadline)[0]:
            pass  # the connection ends with the supervisor: an evaluation leaves nothing running
        if kill and self._handle is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
        self._release()

    def _release(self) -> None:
        self._connection.close()
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None
        self._ended()


class ContainedProcess:
    def __init__(self, supervisor: Supervisor, ended: Callable[[], None]) -> None:
        """Request a process from an idle supervisor; ``ended`` is called after the process was stopped."""
        self._supervisor, self._ended = supervisor, ended
        self._pid = 0
        self._folder = ""
        self._usage: ResourceUsage | None = None
        self._reusable = False
        self._group: ControlGroup | None = None
        self.waiting = SchedulingDelay(0)
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as theirs:
            here, there = socket.socketpair()
            self.channel = undo.enter_context(here)
            channel = theirs.enter_context(there)
            with contextlib.suppress(OSError):  # older kernels drop descriptors that the reader has no room for
                here.setsockopt(socket.SOL_SOCKET, _SO_PASSRIGHTS, 0)
            (out, their_out), (err, their_err) = pipe(undo, theirs), pipe(undo, theirs)
            self.logs: Mapping[str, int] = {"stdout": out, "stderr": err}
            fds = [their_out, their_err, channel.fileno()]  # the supervisor receives them as 1, 2 and 3
            if (parent := delegated()) is not None:
                self._group = ControlGroup(parent, supervisor.needs)
                undo.callback(self._group.remove)
                theirs.callback(os.close, self._group.members)
                fds.append(self._group.members)
            supervisor.send(fds)
            undo.pop_all()
        for fd in self.logs.values():
            os.set_blocking(fd, False)

    def wait_ready(self, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not self._pid and self._usage is None:
            if not self._take(*self._supervisor.receive(deadline)):
                return False
        # The supervisor's next message is the exit report.
        return self._usage is None and not self._supervisor.readable(0)

    def stop(self, *, grace_s: float = 0.0) -> ResourceUsage:
        if self._usage is None:
            if grace_s:
                self._supervisor.readable(grace_s)
            self._supervisor.stop()
            with contextlib.suppress(OSError):
                deadline = time.monotonic() + _REMOVE_S
                while self._usage is None and self._take(*self._supervisor.receive(deadline)):
                    pass
        if self._usage is None:
            self._supervisor.close(kill=True)
            self._sweep()
        else:
            self._supervisor.free(reusable=self._reusable)
        usage = self._usage or ResourceUsage(None, ended=False)
        if self._group is not None:
            usage = replace(usage, cpu_s=max(usage.cpu_s, self._group.cpu_s()))
            self._group.remove()
        self._ended()
        return usage

    def close(self) -> None:
        self.channel.close()
        self.waiting.close()
        for fd in self.logs.values():
            os.close(fd)

    def _take(self, data: bytes, pid: int) -> bool:
        """Note what a message reports; False if there is none, ``OSError`` if it is an error."""
        match data[:1]:
            case b"":
                return False
            case kind if kind == READY:
                self._pid, self._folder = pid, os.fsdecode(data[1:])
                cores = min(self._supervisor.needs.limits.cores, len(os.sched_getaffinity(0)))
                group_s = None if self._group is None else self._group.cpu_s
                self.waiting = SchedulingDelay(pid, self._supervisor.pid, cores, group_s)
            case kind if kind == EXIT:
                self._usage, self._reusable = _exit(data)
                self._reusable &= bool(self._pid)  # where one does not get ready, the next one need not either
            case kind if kind == HELLO:
                self._supervisor.know(pid, apart=data[1:] == b"1")
            case kind if kind == ERROR:
                raise OSError(data[1:].decode("utf-8", "replace"))
        return True

    def _sweep(self) -> None:
        """Clean up for a killed supervisor in tiers without namespaces."""
        if self._supervisor.apart:
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
        for left in orphaned_folders(self._supervisor.zygote):
            remove(left)


def _exit(report: bytes) -> tuple[ResourceUsage, bool]:
    """Return the usage in a report of an exit, and whether its supervisor can start another process."""
    _, flags, status, user_s, user_us, system_s, system_us, memory_kib = REPORT.unpack_from(report)
    cpu_s = user_s + system_s + (user_us + system_us) / 1e6
    if others := report[REPORT.size :]:
        left = json.loads(others)
        # What was seen is less than the kernel's figures, unless a program made the kernel drop some of them.
        cpu_s = max(cpu_s + left["cpu_s"], left["seen_s"])
        memory_kib = max(memory_kib, left["memory_kib"], left["seen_kib"])
    exceeded = next(limit for limit in reversed(FLAGS) if flags & FLAGS[limit] == FLAGS[limit])
    return ResourceUsage(status, bool(flags & ENDED), cpu_s, memory_kib * 1024, exceeded), not flags & RETIRED


def sender(credentials: list[tuple[int, int, bytes]]) -> int:
    """Return the sender's process id from the kernel: inside a namespace, a process knows only its inner id."""
    return int(CREDENTIALS.unpack(credentials[0][2])[0]) if credentials else 0


def longest_answer(role: ProcessRole, limits: Limits) -> int:
    """Return how many bytes of a frame are accepted from a process."""
    with_notes = limits.output_bytes + 16 * limits.log_bytes  # of up to twelve bytes a character
    by_role = {ProcessRole.AUTHOR: _AUTHOR_FRAME_BYTES, ProcessRole.IN_PROCESS: with_notes}
    return by_role.get(role, limits.output_bytes) + ENVELOPE_BYTES


def _order(needs: ProcessSpec, folder: str) -> SpawnRequest:
    limits = needs.limits
    return SpawnRequest(
        role=needs.role.value,
        frame_bytes=longest_answer(needs.role, limits) - ENVELOPE_BYTES // 2,
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


def pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    here, there = os.pipe()
    ours.callback(os.close, here)
    theirs.callback(os.close, there)
    return here, there
