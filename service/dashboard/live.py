"""Live parts of pages: rendered once per commit for all viewers of a process (ADR 16)."""

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

Seen = Annotated[str, Query(max_length=100)]
"""Query parameter: id of the frame that the page already shows."""

_THREADS: Final = 2


@dataclass(frozen=True, slots=True)
class LivePart:
    html: str
    revision: str = ""  # changes when the data of the page's charts changes
    final: bool = False  # True if the part will not change again


class _LiveChannel(Channel[str]):
    """Renders a part and keeps its latest frame; positions are ids of frames."""

    def __init__(self, run_id: UUID | None, render: Callable[[], LivePart], hub: "LiveViews") -> None:
        super().__init__(run_id)
        self.frame, self.frame_id, self.final = b"", "", False
        self._render = render
        self._hub = hub

    async def serve(self) -> None:
        while not self.final:
            part = await to_thread.run_sync(self._render, limiter=self._hub.threads)
            data = json.dumps({"html": part.html, "revision": part.revision})
            digest = hashlib.blake2b(data.encode(), digest_size=12).hexdigest()
            if digest != self.frame_id or part.final:
                self.frame = f"id: {digest}\nevent: part\ndata: {data}\n\n".encode()
                self.frame_id, self.final = digest, part.final
                self.notify()
            if not part.final:
                await asyncio.sleep(self._hub.pause_s)
                await wait(self.changed, self._hub.poll_s)

    async def news(self, position: str) -> tuple[bytes, str] | None:
        return (self.frame, self.frame_id) if self.frame_id and self.frame_id != position else None

    def is_over(self, position: str) -> bool:
        return self.final and self.frame_id == position


class LiveViews(StreamHub):
    """The open streams of the live parts of pages; ``pause_s`` is the shortest time between two renderings."""

    def __init__(self, *, poll_s: float = 2.0, pause_s: float = 0.25) -> None:
        super().__init__(poll_s=poll_s)
        self.pause_s = pause_s
        self.threads = CapacityLimiter(_THREADS)

    def watch(self, key: str, render: Callable[[], LivePart], *, run_id: UUID | None, seen: str) -> StreamingResponse:
        self.require_capacity()
        return self.open(self.channel(key, lambda: _LiveChannel(run_id, render, self)), seen)
