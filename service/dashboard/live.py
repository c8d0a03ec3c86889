"""Live parts of pages: rendered once per commit for all viewers of a process (ADR 16)."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final
from uuid import UUID

from anyio import CapacityLimiter, to_thread
from fastapi import Query
from starlette.responses import StreamingResponse

from service.streams import Channel, StreamHub, wait

POLL_S: Final = 2.0
PAUSE_S: Final = 0.25
"""Shortest time between two renderings of a part."""

Seen = Annotated[str, Query(max_length=100)]
"""Query parameter: id of the frame that the page already shows."""

_THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class LivePart:
    """The current state of a page's live part."""

    html: str
    revision: str = ""  # changes when the data of the page's charts changes
    final: bool = False  # True if the part will not change again


@dataclass(frozen=True, slots=True)
class _LiveFrame:
    id: str
    text: bytes
    final: bool

    @classmethod
    def of(cls, part: LivePart) -> _LiveFrame:
        data = json.dumps({"html": part.html, "revision": part.revision})
        digest = hashlib.blake2b(data.encode(), digest_size=12).hexdigest()
        return cls(digest, f"id: {digest}\nevent: part\ndata: {data}\n\n".encode(), part.final)


class _LiveChannel(Channel[str]):
    """Renders a part and keeps its latest frame; positions are ids of frames."""

    def __init__(self, run_id: UUID | None, render: Callable[[], LivePart], hub: LiveViews) -> None:
        super().__init__(run_id)
        self.frame: _LiveFrame | None = None
        self._render = render
        self._hub = hub

    async def serve(self) -> None:
        while self.frame is None or not self.frame.final:
            frame = _LiveFrame.of(await to_thread.run_sync(self._render, limiter=self._hub.threads))
            if self.frame is None or frame.id != self.frame.id:
                self.frame = frame
                self.notify()
            if not frame.final:
                await asyncio.sleep(self._hub.pause_s)
                await wait(self.changed, self._hub.poll_s)

    async def news(self, position: str) -> tuple[bytes, str] | None:
        return (self.frame.text, self.frame.id) if self.frame is not None and self.frame.id != position else None

    def is_over(self, position: str) -> bool:
        return self.frame is not None and self.frame.final and self.frame.id == position


class LiveViews(StreamHub):
    """The open streams of the live parts of pages."""

    def __init__(self, *, poll_s: float = POLL_S, pause_s: float = PAUSE_S) -> None:
        super().__init__(poll_s=poll_s)
        self.pause_s = pause_s
        self.threads = CapacityLimiter(_THREADS)

    def watch(self, key: str, render: Callable[[], LivePart], *, run_id: UUID | None, seen: str) -> StreamingResponse:
        self.require_capacity()
        channel = self.channel(key, lambda: _LiveChannel(run_id, render, self))
        return self.open(channel, seen)
