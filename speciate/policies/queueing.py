"""Hold back requests while an endpoint's queue is long, as reported by its metrics at most once a second."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from speciate.policies.numbers import sum_of_counts

_WAITING: Final = re.compile(
    r"^(?:vllm:|speciate_serve_)num_requests_waiting(?:\{[^}\n]*\})? +([0-9.eE+]+)", re.MULTILINE
)
_RUNNING: Final = re.compile(r"^vllm:num_requests_running(?:\{[^}\n]*\})? +([0-9.eE+]+)", re.MULTILINE)
_FRESH_S: Final = 1.0
_ABSENT_S: Final = 30.0
_POLL_S: Final = 0.25


def waiting_sequences(metrics: str) -> int | None:
    return sum_of_counts(_WAITING.findall(metrics))


def sequences_at_work(metrics: str) -> int:
    return (sum_of_counts(_RUNNING.findall(metrics)) or 0) + (waiting_sequences(metrics) or 0)


class QueueGate:
    """Admit requests while fewer sequences than a bound wait at the endpoint.

    Requests that were sent since the last reading and are unanswered count as waiting, so that the queue cannot fill
    within a second. Each process has its own gate for each policy: with P processes at most P × bound sequences wait.

    Args:
        read: Return the endpoint's metrics; None if it does not answer, and the last reading stays in force.
        bound: Most sequences that may wait.
        pause: Wait until a slot may be free; tests replace it.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        read: Callable[[], str | None],
        bound: int,
        *,
        pause: Callable[[threading.Condition], object] = lambda changed: changed.wait(_POLL_S),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read, self._bound, self._pause, self._clock = read, bound, pause, clock
        self._changed = threading.Condition()
        self._waiting: int | None = None
        self._stale_at = float("-inf")
        self._readings = 0
        self._sent_since = 0

    @contextmanager
    def slot(self, sequences: int, *, give_up: Callable[[], bool], longest_s: float) -> Iterator[bool]:
        """Wait for a slot, and hold it until the block ends.

        Yields:
            True if there was a slot; False after the longest wait or ``give_up``.
        """
        deadline = self._clock() + longest_s
        with self._changed:
            while (reading := self._enter(sequences)) is None:
                if give_up() or self._clock() >= deadline:
                    break
                self._pause(self._changed)
        if reading is None:
            yield False
            return
        try:
            yield True
        finally:
            with self._changed:
                if reading == self._readings:
                    self._sent_since -= sequences
                    self._changed.notify_all()

    def _enter(self, sequences: int) -> int | None:
        if self._clock() >= self._stale_at:
            text = self._read()
            self._waiting = self._waiting if text is None else waiting_sequences(text)
            self._stale_at = self._clock() + (_ABSENT_S if self._waiting is None else _FRESH_S)
            self._readings += 1
            self._sent_since = 0
        ahead = 0 if self._waiting is None else self._waiting + self._sent_since
        # A request that is larger than the bound is admitted once nothing waits.
        if ahead and ahead + sequences > self._bound:
            return None
        self._sent_since += sequences
        return self._readings
