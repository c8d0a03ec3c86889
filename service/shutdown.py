"""Stopping in order: first this process says that it leaves, so that requests and streams go to other replicas; then
its streams end, since they never do by themselves and the server waits for open answers; then the server stops."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def on_stop_signal(leave: Callable[[], None], end: Callable[[], None], leave_s: float) -> Iterator[None]:
    """Put a time of leaving before the server's own reaction to SIGTERM and SIGINT.

    Args:
        leave: Called in the running event loop as soon as the signal comes.
        end: Called ``leave_s`` seconds later, just before the server's handler; at once with a second signal.
        leave_s: Seconds in which the process still answers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's; a server in another thread is stopped by its owner
        return
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Any] = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}

    told: list[int] = []

    def finish(number: int, frame: FrameType | None) -> None:
        end()
        before[signal.Signals(number)](number, frame)

    def stop(number: int, frame: FrameType | None) -> None:
        wait_s = 0.0 if told else leave_s
        told.append(number)
        loop.call_soon_threadsafe(leave)
        loop.call_soon_threadsafe(loop.call_later, wait_s, finish, number, frame)

    # Only where the server handles the signal itself: otherwise its default, the end of the process, has to stay.
    chained = [each for each, handler in before.items() if callable(handler)]
    for each in chained:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each in chained:
            signal.signal(each, before[each])
