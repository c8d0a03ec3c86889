"""Exchange messages with an untrusted process, which can neither block nor harm the worker."""

import contextlib
import math
import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Protocol

from evaluators.channel import FrameReader, Message
from evaluators.contained.untrusted import FrameError
from evaluators.contained.wire import frame
from evaluators.text import Tail
from evaluators.tiers.sandbox import ResourceUsage, SandboxedProcess
from speciate.ports.interruption import interrupted

_CHUNK_BYTES = 1 << 16
_SEND_BYTES = 1 << 18
_SEND_FLAGS = socket.MSG_NOSIGNAL | socket.MSG_DONTWAIT
_DYING_S = 0.2
PATIENCE = 10.0
"""Limit on clock time, including waits for a processor, as a multiple of the time limit."""

_LONGEST_POLL_S = 0.5  # how late an interruption, or too much processor time, is noticed


class TimeAllowance:
    """Time limit of a process for one task, not counting the time that others keep it waiting for a processor.

    Otherwise a result on a busy host would depend on the load. Clock time has a limit, too: ``PATIENCE`` times the
    limit. Time in which the process and what it starts have as many processors as they may use counts in any case: what
    waits then waits for its own kind.

    ``until`` is a deadline on the clock of ``time.monotonic``; ``cpu_s`` limits the processor time of the process and
    what it starts together, after half a second; ``per_call`` is True if it starts one for each call; ``paused_s``
    are seconds that do not count, because the process waited for an answer.
    """

    def __init__(
        self,
        contained: SandboxedProcess,
        limit_s: float,
        until: float,
        cpu_s: float = math.inf,
        *,
        per_call: bool = False,
    ) -> None:
        self._waiting = contained.waiting
        self._began, self._waited_s = time.monotonic(), self._waiting.own_s()
        # A process that serves many tasks with many others is measured later: that takes as long as a short task.
        self._ran_s = self._waiting.own_ran_s if cpu_s == math.inf else None
        if per_call:  # which takes longer to start
            self._ran_s = self._waiting.ran_s()
        self._limit_s, self._until, self._cpu_s = limit_s, until, cpu_s
        self._look = self._began + _LONGEST_POLL_S
        self._granted_s = self._ended_s = 0.0
        self.paused_s = 0.0

    @property
    def used_s(self) -> float:
        """Seconds counted so far; excludes time granted for waits, which may have ended."""
        ran_s = time.monotonic() - self._began - self.paused_s
        return ran_s - max(self._waiting.own_s() - self._waited_s, self._granted_s)

    def left_s(self) -> float:
        """Return a lower bound on the seconds left; ``SessionEndedError`` if the processor time is used up."""
        now = time.monotonic()
        left = self._left_s(now)
        if left <= 0.0:  # query the kernel only when necessary
            self._grant(now)
            left = self._left_s(now)
        if self._cpu_s < math.inf and now >= self._look:
            self._look = now + _LONGEST_POLL_S
            if (used_s := self._used_cpu_s()) >= self._cpu_s:
                detail = f"used {used_s:.1f} s of processor time, {self._cpu_s:g} s are allowed"
                raise SessionEndedError(EndReason.SPENT, detail)
        return min(left, self._until - now)

    def count_ended(self) -> None:
        """Count what the process of a call has waited, which has ended and is not reaped before the next one."""
        self._grant(time.monotonic())
        self._ended_s += self._waiting.others_s()

    def _grant(self, now: float) -> None:
        passed_s = now - self._began
        others_s = self._ended_s + self._waiting.others_s()
        waited_s = self._waiting.own_s() - self._waited_s + min(others_s, passed_s)
        lacked_s = passed_s - self.paused_s - self._used_cpu_s() / self._waiting.cores
        granted_s = min(waited_s, lacked_s, (PATIENCE - 1) * self._limit_s)
        self._granted_s = max(self._granted_s, granted_s)

    def _left_s(self, now: float) -> float:
        return self._began + self._limit_s + self.paused_s + self._granted_s - now

    def _used_cpu_s(self) -> float:
        ran_s = self._waiting.ran_s()
        if self._ran_s is None:
            self._ran_s = ran_s
        return ran_s - self._ran_s


class TimeLeft(Protocol):
    def left_s(self) -> float:
        """Return a lower bound on the seconds left; 0 or less means that the time is up; may raise."""


class EndReason(StrEnum):
    LATE = "late"
    """The process did not answer in time."""
    SPENT = "spent"
    """The process and what it started used up their processor time."""
    GONE = "gone"
    """The process ended or closed the channel."""
    BROKEN = "broken"
    """The process sent an invalid frame."""


class SessionEndedError(Exception):
    """The session has ended; ``ending`` is the reason."""

    def __init__(self, ending: EndReason, detail: str = "") -> None:
        super().__init__(detail)
        self.ending = ending
        self.detail = detail


class Session:
    """The worker's end of one contained process.

    The worker drains logs whenever it waits, so a process that floods them never blocks and never fills memory. Of each
    it keeps ``log_bytes``; ``heard`` receives what the process prints, as it arrives.
    """

    def __init__(
        self,
        contained: SandboxedProcess,
        *,
        frame_bytes: int,
        log_bytes: int,
        heard: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        self._contained, self._heard = contained, heard
        self._channel = contained.channel
        self._fd = contained.channel.fileno()
        self._reader = FrameReader(frame_bytes)
        self._unsent = bytearray()
        self._blocked = False  # the process has no room for what is unsent
        self._tails = {fd: Tail(log_bytes) for fd in contained.logs.values()}
        self._open_logs = set(self._tails)
        self._poll = select.poll()
        for fd in (self._fd, *self._open_logs):
            self._poll.register(fd, select.POLLIN)
        self._beside: Session | None = None
        self._logs_beside: set[int] = set()
        self._gone = self._muted = False
        self._protocol_error: str | None = None
        self._usage: ResourceUsage | None = None

    def post(self, message: Message) -> None:
        """Queue a message; the session sends it while the worker waits for answers."""
        self._unsent += frame(message)

    def allow(self, limit_s: float, until: float, cpu_s: float = math.inf, *, per_call: bool = False) -> TimeAllowance:
        return TimeAllowance(self._contained, limit_s, until, cpu_s, per_call=per_call)

    def post_with(self, message: Message, descriptors: Sequence[int]) -> bool:
        """Send a message with descriptors; False if that is not possible at once."""
        if self._unsent:
            return False
        data = frame(message)
        try:
            sent = socket.send_fds(self._channel, [data[:_SEND_BYTES]], descriptors, _SEND_FLAGS)
        except (BrokenPipeError, ConnectionResetError):
            sent = len(data)  # the reader is gone, as the next ``receive`` finds out
        except OSError:
            return False  # no room, or too many descriptors are under way
        self._unsent += data[sent:]
        return True

    def acquire(self) -> int | None:
        """Return the channel, for another process that takes over; None while messages are unsent."""
        if self._unsent:
            self._send()
        return None if self._unsent else self._fd

    def shut_down(self) -> None:
        """End the channel in both directions, also for a script that waits at it."""
        with contextlib.suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)

    def note_end(self) -> None:
        """Note that the process has ended or closed the channel, as the script that called it directly noticed."""
        self._gone = True

    def drain_beside(self, other: "Session | None") -> None:
        """From now on, drain the logs of another process, too, while this one is waited for."""
        for fd in self._logs_beside:
            self._poll.unregister(fd)
        self._beside, self._logs_beside = other, set() if other is None else set(other._open_logs)
        for fd in self._logs_beside:
            self._poll.register(fd, select.POLLIN)

    def receive(self, allowance: TimeLeft) -> Message:
        """Return the next message; ``SessionEndedError`` says why there is none."""
        if self._protocol_error is not None:
            raise SessionEndedError(EndReason.BROKEN, self._protocol_error)
        if self._unsent:
            self._send()  # the process usually has room for it, so that one poll waits for the answer
        try:
            while (message := self._reader.next()) is None:
                if self._gone:
                    raise SessionEndedError(EndReason.GONE)
                self._pump(allowance)
        except FrameError as error:
            self._protocol_error = str(error)
            raise SessionEndedError(EndReason.BROKEN, self._protocol_error) from None
        return message

    def mute(self) -> None:
        for fd in tuple(self._open_logs):
            self._drain(fd)  # once: all that fits into a pipe, but not for ever
        self._muted = True

    @property
    def has_others(self) -> bool:
        return bool(self._contained.waiting.others())

    def logs(self) -> dict[str, str]:
        return {name: self._tails[fd].take() for name, fd in self._contained.logs.items()}

    def end(self) -> ResourceUsage:
        """Stop the process, read its logs, close everything and return its usage; repeated calls return the same."""
        if self._usage is None:
            self._usage = self._contained.stop(grace_s=_DYING_S if self._gone else 0.0)
            for fd in tuple(self._open_logs):
                while fd in self._open_logs and self._drain(fd):
                    pass
            self._contained.close()
        return self._usage

    def _pump(self, allowance: TimeLeft) -> None:
        """Transfer bytes once, waiting for data at most as long as the allowance lasts."""
        left = allowance.left_s()
        if left <= 0 or interrupted():
            raise SessionEndedError(EndReason.LATE)
        for fd, event in self._poll.poll(math.ceil(min(left, _LONGEST_POLL_S) * 1000)):
            if fd in self._open_logs:
                self._drain(fd)
                continue
            if fd != self._fd:
                self._drain_beside(fd)
                continue
            if event & select.POLLOUT:
                self._send()
            if event & ~select.POLLOUT:
                self._receive()

    def _send(self) -> None:
        try:
            sent = self._channel.send(self._unsent[:_SEND_BYTES], _SEND_FLAGS)
        except BlockingIOError:
            sent = 0
        except OSError:
            sent = len(self._unsent)  # the reader is gone; earlier answers can still be received
        del self._unsent[:sent]
        if bool(self._unsent) is not self._blocked:
            self._blocked = not self._blocked
            self._poll.modify(self._fd, select.POLLIN | (select.POLLOUT if self._blocked else 0))

    def _receive(self) -> None:
        try:
            data = self._channel.recv(_CHUNK_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._reader.feed(data)
        self._gone = not data

    def _drain_beside(self, fd: int) -> None:
        if self._beside is not None:
            self._beside._drain(fd)
            if fd not in self._beside._open_logs:
                self._logs_beside.discard(fd)
                self._poll.unregister(fd)

    def _drain(self, fd: int) -> bool:
        """Read from a log once; return True if it contained data."""
        try:
            data = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data and fd in self._open_logs:
            self._open_logs.discard(fd)
            self._poll.unregister(fd)
        if not self._muted:
            self._tails[fd].feed(data)
            self._heard(data)
        return bool(data)
