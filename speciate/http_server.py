"""uvicorn that sleeps while nothing happens."""

import asyncio
from contextlib import suppress
from types import FrameType
from typing import Final

import uvicorn

_TICK_S: Final = 1.0
"""Seconds between two updates of the ``Date`` header."""


class HttpServer(uvicorn.Server):
    """A server that waits for the signal to stop. ``uvicorn.Server`` wakes ten times a second to look for it."""

    _stop: asyncio.Event | None = None
    _loop: asyncio.AbstractEventLoop

    async def main_loop(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        while not await self.on_tick(0):  # tick 0 updates the header, as each tenth one does
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), _TICK_S)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
