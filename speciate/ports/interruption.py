"""Interrupt work whose lease is lost: an evaluation of hours would otherwise hold its slot for nothing."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_LOST: ContextVar[threading.Event | None] = ContextVar("lost", default=None)


@contextmanager
def interruptible(lost: threading.Event) -> Iterator[None]:
    """Let ``interrupted`` report an event to everything that this thread does within the block."""
    token = _LOST.set(lost)
    try:
        yield
    finally:
        _LOST.reset(token)


def interrupted() -> bool:
    """Return True if the result of the current work is no longer wanted."""
    lost = _LOST.get()
    return lost is not None and lost.is_set()


def sleep(seconds: float) -> None:
    """Sleep, but not on after an interruption."""
    lost = _LOST.get()
    time.sleep(seconds) if lost is None else lost.wait(seconds)
