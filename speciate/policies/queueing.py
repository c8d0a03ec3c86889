"""Leaves an endpoint alone while its queue is long: what vLLM's metrics say of it, read at most once a second."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_WAITING: Final = re.compile(
    r"^(?:vllm:|speciate_serve_)num_requests_waiting(?:\{[^}\n]*\})? +([0-9.eE+]+)", re.MULTILINE
)
_RUNNING: Final = re.compile(r"^vllm:num_requests_running(?:\{[^}\n]*\})? +([0-9.eE+]+)", re.MULTILINE)
_FRESH_S: Final = 1.0
_ABSENT_S: Final = 30.0
_POLL_S: Final = 0.25


def waiting_sequences(metrics: str) -> int | None:
    """Return how many sequences wait at an endpoint, over all its models and engines; None where it does not say."""
    found = _WAITING.findall(metrics)
    return int(sum(map(float, found))) if found else None


def sequences_at_work(metrics: str) -> int:
    """Return how many sequences run or wait at a vLLM server."""
    return int(sum(map(float, _RUNNING.findall(metrics)))) + (waiting_sequences(metrics) or 0)


class QueueGate:
    """Lets requests pass while fewer sequences than a bound wait at the endpoint.

    What was sent after the last reading and is not answered yet counts as waiting, so that a second is not long enough
    to fill the queue. Each process has a gate of its own for each policy: with P of them at most P × bound wait.

    Args:
        read: Returns the endpoint's metrics; None where there is no answer now, and the last reading goes on to count.
        bound: Most sequences that wait.
        pause: Waits until a turn may have come; a test hands in its own.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        read: Callable[[], str | None],
        bound: int,
        *,
        pause: Callable[[threading.Condition], object] = lambda turn: turn.wait(_POLL_S),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._bound, self._pause, self._clock = read, bound, pause, clock
        self._turn = threading.Condition()
        self._waiting: int | None = None
        self._stale_at = float("-inf")
        self._readings = 0
        self._since = 0

    @contextmanager
    def passage(self, sequences: int, *, give_up: Callable[[], bool], longest_s: float) -> Iterator[bool]:
        """Wait for a turn, and hold it until the block ends.

        Args:
            sequences: How many the request adds.
            give_up: Asked now and then whether to stop waiting.
            longest_s: Longest wait.

        Yields:
            Whether there was a turn; False when it waited too long or gave up.
        """
        deadline = self._clock() + longest_s
        with self._turn:
            while (reading := self._enter(sequences)) is None:
                if give_up() or self._clock() >= deadline:
                    break
                self._pause(self._turn)
        if reading is None:
            yield False
            return
        try:
            yield True
        finally:
            with self._turn:
                if reading == self._readings:
                    self._since -= sequences
                    self._turn.notify_all()

    def _enter(self, sequences: int) -> int | None:
        """Return the number of the reading by which there is a turn, or None; the lock is held."""
        if self._clock() >= self._stale_at:
            text = self._read()
            self._waiting = self._waiting if text is None else waiting_sequences(text)
            self._stale_at = self._clock() + (_ABSENT_S if self._waiting is None else _FRESH_S)
            self._readings += 1
            self._since = 0
        ahead = 0 if self._waiting is None else self._waiting + self._since
        # A request that is larger than the bound passes once nothing waits.
        if ahead and ahead + sequences > self._bound:
            return None
        self._since += sequences
        return self._readings
