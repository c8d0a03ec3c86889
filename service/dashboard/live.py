"""LiveViews parts of pages: rendered once for all viewers of this process when something was committed (ADR 16)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from anyio import CapacityLimiter, to_thread
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.events import END, HEARTBEAT_S
from service.sse import MAX_STREAMS, MEDIA_TYPE
from speciate.domain.errors import SpeciateError, UnavailableError

POLL_S: Final = 2.0
"""How often a view is rendered when nothing wakes it."""

PAUSE_S: Final = 0.25
"""Shortest time between two renderings of a view."""

_THREADS: Final = 2
_OPENING: Final = b"retry: 1000\n\n"
_HEARTBEAT: Final = b": still here\n\n"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LivePart:
    """The changing part of a page as it is now.

    Attributes:
        html: What is shown.
        revision: Grows or changes with what charts are drawn from.
        final: Whether it never changes again.
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


@dataclass(eq=False)
class _LiveView:
    """What several viewers look at."""

    render: Callable[[], LivePart]
    run_id: UUID | None
    frame: _LiveFrame | None = None
    viewers: set[asyncio.Event] = field(default_factory=set)
    news: asyncio.Event = field(default_factory=asyncio.Event)
    broken: bool = False
    task: asyncio.Task[None] | None = None

    def tell(self) -> None:
        for viewer in self.viewers:
            viewer.set()


class LiveViews:
    """All watched views of this process.

    Attributes:
        poll_s: How often a view is rendered when nothing wakes it.
        pause_s: Shortest time between two renderings of a view.
    """

    def __init__(self, *, poll_s: float = POLL_S, pause_s: float = PAUSE_S) -> None:
        self.poll_s = poll_s
        self.pause_s = pause_s
        self._views: dict[str, _LiveView] = {}
        self._threads = CapacityLimiter(_THREADS)
        self._closing = False

    @property
    def viewers(self) -> int:
        """Open streams."""
        return sum(len(view.viewers) for view in self._views.values())

    def wake(self, run_id: UUID) -> None:
        """Render what shows a run, and what shows all of them, again."""
        for view in self._views.values():
            if view.run_id is None or view.run_id == run_id:
                view.news.set()

    def close(self) -> None:
        """End every stream; viewers connect again, perhaps to another process."""
        self._closing = True
        for view in self._views.values():
            view.tell()

    def watch(self, key: str, render: Callable[[], LivePart], *, run_id: UUID | None, seen: str) -> StreamingResponse:
        """Return the stream of a view.

        Args:
            key: Names the view: equal keys have equal parts.
            render: Makes the part; called in a thread.
            run_id: The run whose commits change it, or None for all of them.
            seen: Id of the frame that the viewer has.

        Raises:
            UnavailableError: This process stops, or too many streams are open.
        """
        if self._closing:
            raise UnavailableError("this process of the API is stopping.", remedy="Connect again in a moment.")
        if self.viewers >= MAX_STREAMS:
            raise UnavailableError(f"{MAX_STREAMS} streams are open, which is the most this process serves.")
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = _LiveView(render, run_id)
            view.task = asyncio.create_task(self._serve(key, view), name=f"view {key}")
            view.task.add_done_callback(_report)
        news = asyncio.Event()
        news.set()
        view.viewers.add(news)
        return _LiveResponse(self._chunks(view, news, seen), lambda: self._leave(key, view, news))

    def _leave(self, key: str, view: _LiveView, news: asyncio.Event) -> None:
        view.viewers.discard(news)
        if not view.viewers:
            if self._views.get(key) is view:
                del self._views[key]
            if view.task is not None:
                view.task.cancel()

    async def _serve(self, key: str, view: _LiveView) -> None:
        try:
            while not (view.frame and view.frame.final):
                view.news.clear()
                frame = _LiveFrame.of(await to_thread.run_sync(view.render, limiter=self._threads))
                if view.frame is None or frame.id != view.frame.id:
                    view.frame = frame
                    view.tell()
                await asyncio.sleep(self.pause_s)
                await _first(view.news, self.poll_s)
        except SpeciateError as error:
            _log.warning("view %s breaks off: %s", key, error)
        finally:
            view.broken = not (view.frame and view.frame.final)
            if self._views.get(key) is view:
                del self._views[key]
            view.tell()

    async def _chunks(self, view: _LiveView, news: asyncio.Event, seen: str) -> AsyncIterator[bytes]:
        yield _OPENING
        while not self._closing:
            if not await _first(news, HEARTBEAT_S):
                yield _HEARTBEAT
            news.clear()
            # Held, since another one may take its place while this one is being sent.
            frame = view.frame
            if frame is not None and frame.id != seen:
                seen = frame.id
                yield frame.text
            if frame is not None and frame.final:
                yield END
                return
            if view.broken:
                return


class _LiveResponse(StreamingResponse):
    def __init__(self, chunks: AsyncIterator[bytes], leave: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(chunks, headers=headers, media_type=MEDIA_TYPE)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s cannot be rendered", task.get_name(), exc_info=error)


async def _first(event: asyncio.Event, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
