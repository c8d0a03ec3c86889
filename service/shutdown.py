"""Graceful shutdown: announce it, end event streams, then stop the server."""

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def on_stop_signal(drain: Callable[[], None], end: Callable[[], None], drain_s: float) -> Iterator[None]:
    """Run a drain period before the server's own reaction to SIGTERM and SIGINT.

    ``drain`` is called in the running event loop as soon as the signal arrives; ``end``, ``drain_s`` seconds later,
    just before the server's handler. A second signal calls it at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals; the owner of another thread stops its server
        return
    loop = asyncio.get_running_loop()
    previous: dict[signal.Signals, Any] = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}
    received: list[int] = []

    def finish(number: int, frame: FrameType | None) -> None:
        end()
        previous[signal.Signals(number)](number, frame)

    def stop(number: int, frame: FrameType | None) -> None:
        wait_s = 0.0 if received else drain_s
        received.append(number)
        loop.call_soon_threadsafe(drain)
        loop.call_soon_threadsafe(loop.call_later, wait_s, finish, number, frame)

    # Signals that the server does not handle keep their default action, which ends the process.
    chained = [each for each, handler in previous.items() if callable(handler)]
    for each in chained:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each in chained:
            signal.signal(each, previous[each])
