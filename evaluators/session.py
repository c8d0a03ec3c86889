"""Exchange messages with an untrusted process, which can neither block nor harm the broker."""

from __future__ import annotations

import math
import os
import select
import socket
import time
from enum import StrEnum

from evaluators.channel import FrameError, FrameReader, Message, encode
from evaluators.text import Tail
from evaluators.tiers.sandbox import ResourceUsage, SandboxedProcess

_CHUNK_BYTES = 1 << 16
_SEND_BYTES = 1 << 18
_DYING_S = 0.2
PATIENCE = 10.0
"""How many times its limit a process has on the clock, whatever it waits for."""

_LONGEST_POLL_S = 3600.0


class TimeAllowance:
    """The seconds that a process has for something, without those in which it waits for a processor.

    On a busy host, or behind processes that go first, a verdict would else depend on what others do. The clock sets a
    bound all the same: ``PATIENCE`` times the limit.

    Args:
        contained: The process; it must have started.
        limit_s: Seconds.
        until: When all must end, on the clock of ``time.monotonic``; may be infinite.
    """

    def __init__(self, contained: SandboxedProcess, limit_s: float, until: float) -> None:
        self._waiting = contained.waiting
        self._began, self._waited_s = time.monotonic(), self._waiting.own_s()
        self._ran_s = self._waiting.ran_s
        self._limit_s, self._until = limit_s, until
        self._granted_s = 0.0

    @property
    def used_s(self) -> float:
        """Seconds that count so far; not those that were granted for what has been waited for and may have ended."""
        return time.monotonic() - self._began - max(self._waiting.own_s() - self._waited_s, self._granted_s)

    def left_s(self) -> float:
        """Return how many seconds are left at least; none are once it is 0 or less."""
        now = time.monotonic()
        left = self._began + self._limit_s + self._granted_s - now
        if left <= 0.0:  # only now is it worth asking the kernel
            waited_s = self._waiting.own_s() - self._waited_s
            # Who has run for that long was not kept waiting: threads that crowd each other are no excuse.
            if self._waiting.ran_s - self._ran_s + self._waiting.others_ran_s() >= self._limit_s:
                waited_s = 0.0
            waited_s += min(self._waiting.below_s(self._limit_s), now - self._began)
            self._granted_s = max(self._granted_s, min(waited_s, (PATIENCE - 1) * self._limit_s))
            left = self._began + self._limit_s + self._granted_s - now
        return min(left, self._until - now)

    def extend(self, seconds: float) -> None:
        """Do not count some time in which the process itself waited for an answer."""
        self._limit_s += seconds


class EndReason(StrEnum):
    """Reason why a session ended."""

    LATE = "late"
    """It did not answer in time."""
    GONE = "gone"
    """It ended, or closed the channel."""
    BROKEN = "broken"
    """It sent something that is not a frame."""


class SessionEndedError(Exception):
    """The session has ended; ``ending`` is the reason."""

    def __init__(self, ending: EndReason, detail: str = "") -> None:
        super().__init__(detail)
        self.ending = ending
        self.detail = detail


class Session:
    """The broker's end of one contained process.

    Logs are drained whenever the broker waits, so a process that floods them never blocks and never fills memory.
    """

    def __init__(self, contained: SandboxedProcess, *, frame_bytes: int, log_bytes: int) -> None:
        self._contained = contained
        self._channel = contained.channel
        self._reader = FrameReader(frame_bytes)
        self._unsent = bytearray()
        self._tails = {fd: Tail(log_bytes) for fd in contained.logs.values()}
        self._open_logs = set(self._tails)
        self._gone = False
        self._protocol_error: str | None = None

    def post(self, message: Message) -> None:
        """Queue a message; it is sent while the broker waits for answers."""
        self._unsent += encode(message)

    def allow(self, limit_s: float, until: float) -> TimeAllowance:
        """Begin to count the time that the process has, as in ``Allowance``."""
        return TimeAllowance(self._contained, limit_s, until)

    def receive(self, allowance: TimeAllowance) -> Message:
        """Return the next message.

        Raises:
            SessionEndedError: Nothing of the allowance is left, the process is gone, or it broke the protocol.
        """
        if self._protocol_error is not None:
            raise SessionEndedError(EndReason.BROKEN, self._protocol_error)
        try:
            while (message := self._reader.next()) is None:
                if self._gone:
                    raise SessionEndedError(EndReason.GONE)
                self._pump(allowance)
        except FrameError as error:
            self._protocol_error = str(error)
            raise SessionEndedError(EndReason.BROKEN, self._protocol_error) from None
        return message

    def logs(self) -> dict[str, str]:
        """Return what the process printed since the last call, by stream; the tails where it is much."""
        return {name: self._tails[fd].take() for name, fd in self._contained.logs.items()}

    def end(self) -> ResourceUsage:
        """Stop the process, read the rest of its logs, close everything and return what it used."""
        usage = self._contained.stop(grace_s=_DYING_S if self._gone else 0.0)
        for fd in tuple(self._open_logs):
            while fd in self._open_logs and self._drain(fd):
                pass
        self._contained.close()
        return usage

    def _pump(self, allowance: TimeAllowance) -> None:
        """Move bytes once, waiting for some as long as the process has time."""
        left = allowance.left_s()
        if left <= 0:
            raise SessionEndedError(EndReason.LATE)
        poll = select.poll()
        poll.register(self._channel, select.POLLIN | (select.POLLOUT if self._unsent else 0))
        for fd in self._open_logs:
            poll.register(fd, select.POLLIN)
        for fd, event in poll.poll(math.ceil(min(left, _LONGEST_POLL_S) * 1000)):
            if fd != self._channel.fileno():
                self._drain(fd)
                continue
            if event & select.POLLOUT:
                self._send()
            if event & ~select.POLLOUT:
                self._receive()

    def _send(self) -> None:
        try:
            sent = self._channel.send(self._unsent[:_SEND_BYTES], socket.MSG_NOSIGNAL)
        except BlockingIOError:
            return
        except OSError:
            self._unsent.clear()  # the reader is gone; earlier answers can still be received
            return
        del self._unsent[:sent]

    def _receive(self) -> None:
        try:
            data = self._channel.recv(1 << 20)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._reader.feed(data)
        self._gone = not data

    def _drain(self, fd: int) -> bool:
        """Read from a log once and return whether there was something."""
        try:
            data = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            self._open_logs.discard(fd)
        self._tails[fd].feed(data)
        return bool(data)
