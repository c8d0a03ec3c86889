"""The broker's end of a zygote: start it, request processes from it, and restart it when it dies."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from evaluators.channel import ENVELOPE_BYTES, FrameError, FrameReader, Message
from evaluators.contained.meter import Exceeded
from evaluators.contained.requests import SpawnRequest
from evaluators.contained.unsafe import orphaned_folders, remove
from evaluators.limits import rlimits, tasks
from evaluators.tiers.cgroup import ControlGroup, delegated
from evaluators.tiers.launch import environment, launch
from evaluators.tiers.sandbox import ProcessRole, ProcessSpec, ResourceUsage
from evaluators.tiers.scheduling import SchedulingDelay
from speciate.domain.errors import EvaluatorUnavailableError
from speciate.priority import group_nice, set_group_nice

AUTHOR_FRAME_BYTES = 64 << 20
"""Longest message of an author's script, which may hand large inputs to a candidate."""

_CREDENTIALS = struct.Struct("3i")  # process, user and group id (man 7 unix)
_START_S = 30.0
_STOP_S = 10.0
_REMOVE_S = 60.0  # a candidate may leave thousands of files on a slow disk


class Zygote:
    """One zygote process. It ends when the broker closes its end of the socket or dies.

    Attributes:
        missing: Modules that could not be imported, with the reason.
        pid: Process id in the broker's namespace.
        users: Number of its running and starting processes, maintained by the pool.
    """

    def __init__(
        self,
        tier: str,
        preload: tuple[str, ...],
        folders: Path | None,
        site: Path | None = None,
        cores: int = 1,
        toolchains: tuple[str, ...] = (),
    ) -> None:
        """Start the zygote and wait until it is ready.

        Raises:
            EvaluatorUnavailableError: The zygote does not start.
            OSError: The machine has no process, descriptor or temporary space left.
        """
        self.pid, self.users = 0, 0
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.ExitStack() as undo, theirs, os.fdopen(os.memfd_create("log"), "r+b") as log:
            undo.enter_context(self._requests)
            started = launch(tier, theirs.fileno(), preload, folders, site, toolchains)
            self._process = subprocess.Popen(
                started.argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=(theirs.fileno(),),
                env=environment(cores, toolchains),
                cwd="/",
                start_new_session=True,
            )
            undo.callback(self._kill)
            theirs.close()
            self._requests.settimeout(_START_S)
            self._requests.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self.pid, self.missing = self._greet(tier, started.boot.encode(), log)
            self._requests.settimeout(None)
            set_group_nice(group_nice(), self.pid)  # the zygote has a new session, which includes its candidates
            undo.pop_all()

    @property
    def alive(self) -> bool:
        """True while the zygote accepts requests."""
        return self._process.poll() is None

    def start(self, needs: ProcessSpec, ended: Callable[[], None]) -> ContainedProcess:
        """Request a contained process.

        Args:
            needs: Specification of the process.
            ended: Called after the process was stopped.

        Raises:
            OSError: The zygote is dead, or the machine has no descriptor left.
        """
        return ContainedProcess(self._requests, self.pid, needs, self._folder_name(needs.folder), ended, delegated())

    def close(self) -> None:
        """Stop the zygote, in tier A with all its processes; elsewhere supervisors stop when their sockets close."""
        self._requests.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        self._kill()

    def forget(self) -> None:
        """Close this process's copy of the socket after a fork: the zygote belongs to the parent process."""
        self._requests.close()

    def _folder_name(self, folder: Path | None) -> str:
        if folder is None:
            return ""
        inside = "--as-pid-1" in self._process.args  # type: ignore[operator]
        return folder.name if inside else str(folder)

    def _greet(self, tier: str, boot: bytes, log: IO[bytes]) -> tuple[int, dict[str, str]]:
        problem = ""
        try:
            self._requests.send(boot)
            data, credentials, _, _ = self._requests.recvmsg(1 << 16, socket.CMSG_SPACE(_CREDENTIALS.size))
            hello = json.loads(data or b"{}")
            if "missing" in hello:
                return _sender(credentials), dict(hello["missing"])
            problem = str(hello.get("error", ""))
        except (OSError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
        log.seek(0)
        said = log.read(4096).decode("utf-8", "replace").strip()
        raise EvaluatorUnavailableError(
            f"The zygote of tier {tier} does not start: {said or problem or 'it ended without output'}",
            remedy="Run `speciate doctor` to see which tiers work on this machine and what the others need.",
        )

    def _kill(self) -> None:
        if self.pid and self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()


class ContainedProcess:
    """A supervisor and the contained process that it forks.

    Attributes:
        channel: Non-blocking stream to the contained process.
        logs: Descriptors of its standard output and error.
        waiting: Time that it waited for a processor, available once the process is ready.
    """

    def __init__(
        self,
        requests: socket.socket,
        zygote: int,
        needs: ProcessSpec,
        folder: str,
        ended: Callable[[], None],
        parent: Path | None = None,
    ) -> None:
        """Request a process from a zygote; ``parent`` is the parent of its control group, or None."""
        self._ended = ended
        self._zygote = zygote
        self._reports = FrameReader(1 << 16)
        self._started: Message | None = None
        self.waiting = SchedulingDelay(0)
        self._group: ControlGroup | None = None
        with contextlib.ExitStack() as undo, contextlib.ExitStack() as theirs:
            self.channel, channel = _socket_pair(undo, theirs)
            self._control, control = _socket_pair(undo, theirs)
            self._control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            (out, their_out), (err, their_err) = _pipe(undo, theirs), _pipe(undo, theirs)
            self.logs: Mapping[str, int] = {"stdout": out, "stderr": err}
            fds = [channel.fileno(), control.fileno(), their_out, their_err]
            if parent is not None:
                self._group = ControlGroup(parent, needs)
                undo.callback(self._group.remove)
                theirs.callback(self._group.entered)
                fds.append(self._group.members)
            socket.send_fds(requests, [_order(needs, folder).encode()], fds, socket.MSG_NOSIGNAL)
            undo.pop_all()
        self.channel.setblocking(False)
        for fd in self.logs.values():
            os.set_blocking(fd, False)

    def wait_ready(self, timeout_s: float) -> bool:
        """Wait for the supervisor's report; return True if the contained process runs."""
        if self._started is None:
            self._started = self._report(time.monotonic() + timeout_s)
        # The supervisor's next message is the exit report.
        return self._started is not None and not _readable(self._control, 0)

    def stop(self, *, grace_s: float = 0.0) -> ResourceUsage:
        """Ask the supervisor to kill and sweep everything, and return its report."""
        try:
            return self._stop(grace_s)
        finally:
            self._ended()

    def _stop(self, grace_s: float) -> ResourceUsage:
        if grace_s:
            _readable(self._control, grace_s)
        _close_write(self._control)
        deadline = time.monotonic() + _REMOVE_S
        report = None
        while report is None and (message := self._report(deadline)) is not None:
            if "status" in message:
                report = message  # the supervisor's last message: only the supervisor itself still runs
            else:
                self._started = message
        self._control.close()
        if report is None:
            self._sweep()
        if self._group is not None:
            self._group.remove()
        return _usage(report)

    def close(self) -> None:
        """Close the channel and the logs."""
        self.channel.close()
        self.waiting.close()
        for fd in self.logs.values():
            os.close(fd)

    def _report(self, deadline: float) -> Message | None:
        """Return the supervisor's next message, or None if it has ended or the time is up."""
        try:
            while (message := self._reports.next()) is None:
                self._control.settimeout(max(deadline - time.monotonic(), 0.001))
                data, credentials, _, _ = self._control.recvmsg(1 << 16, socket.CMSG_SPACE(_CREDENTIALS.size))
                if not data:
                    return None
                if self._started is None:
                    self.waiting = SchedulingDelay(_sender(credentials))
                self._reports.feed(data)
        except (OSError, FrameError):
            return None
        return message

    def _sweep(self) -> None:
        """Clean up for a killed supervisor in tiers without namespaces."""
        match self._started:
            case {"pid": int(pid), "supervisor": int(supervisor), "tmp": str(tmp)} if supervisor != 1:
                for victim in (supervisor, -pid):
                    with contextlib.suppress(OSError):
                        os.kill(victim, signal.SIGKILL)
                if tmp:
                    remove(tmp)
            case None:
                # Killed before its first message, which would have named its folder.
                for left in orphaned_folders(self._zygote):
                    remove(left)
            case _:
                return


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
        ),
        memory_bytes=limits.memory_bytes,
        tasks=tasks(limits, processes=needs.syscall_policy.starts_processes),
        tmp_bytes=limits.tmp_bytes,
        tmp_files=limits.tmp_files,
        syscall_policy=needs.syscall_policy,
        folder=folder,
    )


def _sender(credentials: list[tuple[int, int, bytes]]) -> int:
    """Return the sender's process id from the kernel: inside a namespace, a process knows only its inner id."""
    return int(_CREDENTIALS.unpack(credentials[0][2])[0]) if credentials else 0


def _socket_pair(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[socket.socket, socket.socket]:
    here, there = socket.socketpair()
    return ours.enter_context(here), theirs.enter_context(there)


def _pipe(ours: contextlib.ExitStack, theirs: contextlib.ExitStack) -> tuple[int, int]:
    here, there = os.pipe()
    ours.callback(os.close, here)
    theirs.callback(os.close, there)
    return here, there


def _readable(control: socket.socket, timeout_s: float) -> bool:
    poll = select.poll()
    poll.register(control, select.POLLIN)
    return bool(poll.poll(timeout_s * 1000))


def _close_write(control: socket.socket) -> None:
    # Not close(): a worker that was forked meanwhile may hold a copy of this end.
    try:
        control.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the supervisor is gone


def _usage(report: Message | None) -> ResourceUsage:
    match report:
        case {
            "status": int(status),
            "ended": bool(ended),
            "cpu_s": float(cpu_s),
            "memory_bytes": int(memory),
            "exceeded": str(exceeded),
        }:
            return ResourceUsage(status, ended, cpu_s, memory, Exceeded(exceeded))
        case _:
            return ResourceUsage(None, ended=False)
