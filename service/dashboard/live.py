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

from service.streams import HEARTBEAT, Channel, StreamHub, Viewer, wait

POLL_S: Final = 2.0
PAUSE_S: Final = 0.25
"""Shortest time between two renderings of a part."""

Seen = Annotated[str, Query(max_length=100)]
"""Query parameter: id of the frame that the page already shows."""

_THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class LivePart:
    """The current state of a page's live part.

    Attributes:
        html: Rendered HTML.
        revision: Changes when the data of the page's charts changes.
        final: True if the part will not change again.
    """

    html: str
    revision: str = ""
    final: bool = False


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


class _LiveChannel(Channel["_LiveViewer"]):
    """Renders a part and keeps its latest frame."""

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
                for viewer in self.viewers:
                    viewer.notify()
            if not frame.final:
                await asyncio.sleep(self._hub.pause_s)
                await wait(self.changed, self._hub.poll_s)


class _LiveViewer(Viewer):
    """One page that shows a part."""

    def __init__(self, channel: _LiveChannel, seen: str, heartbeat_s: float) -> None:
        super().__init__(heartbeat_s)
        self._channel = channel
        self._seen = seen

    async def next_chunk(self) -> bytes | None:
        while True:
            frame = self._channel.frame
            if frame is not None and frame.id != self._seen:
                self._seen = frame.id
                return frame.text
            if frame is not None and frame.final:
                return None
            if not await self.wait_for_news() or self.closed:
                return HEARTBEAT


class LiveViews(StreamHub):
    """The open streams of the live parts of pages."""

    def __init__(self, *, poll_s: float = POLL_S, pause_s: float = PAUSE_S) -> None:
        super().__init__(poll_s=poll_s)
        self.pause_s = pause_s
        self.threads = CapacityLimiter(_THREADS)

    def watch(self, key: str, render: Callable[[], LivePart], *, run_id: UUID | None, seen: str) -> StreamingResponse:
        """Return the stream of a part."""
        self.require_capacity()
        channel = self.channel(key, lambda: _LiveChannel(run_id, render, self))
        return self.open(_LiveViewer(channel, seen, self.heartbeat_s), channel)
