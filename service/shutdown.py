"""Stopping in time. The server waits for open answers before it tells the application to stop, and streams never end
by themselves: so the signal that stops the server ends them first."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def on_stop_signal(act: Callable[[], None]) -> Iterator[None]:
    """Have ``act`` called in the running event loop when SIGTERM or SIGINT comes, before the server's own handler."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's; a server in another thread is stopped by its owner
        return
    loop = asyncio.get_running_loop()
    before: dict[signal.Signals, Any] = {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)}

    def stop(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(act)
        earlier = before[signal.Signals(number)]
        if callable(earlier):
            earlier(number, frame)

    # Only where the server handles the signal itself: otherwise its default, the end of the process, has to stay.
    chained = [each for each, handler in before.items() if callable(handler)]
    for each in chained:
        signal.signal(each, stop)
    try:
        yield
    finally:
        for each in chained:
            signal.signal(each, before[each])
