"""Live parts of pages: rendered once per commit for all viewers of a process (ADR 16)."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Annotated, Final
from uuid import UUID

from anyio import CapacityLimiter, to_thread
from fastapi import Query
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.events import END, HEARTBEAT_S
from service.sse import MAX_STREAMS, MEDIA_TYPE
from speciate.domain.errors import SpeciateError, UnavailableError

POLL_S: Final = 2.0
"""Seconds between renderings without a commit."""

PAUSE_S: Final = 0.25
"""Shortest time between two renderings of a view, in seconds."""

Seen = Annotated[str, Query(max_length=100)]
"""Query parameter: id of the frame that the page already shows."""

_THREADS: Final = 2
_OPENING: Final = b"retry: 1000\n\n"
_HEARTBEAT: Final = b": still here\n\n"
_log = logging.getLogger(__name__)


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


@dataclass(eq=False)
class _LiveView:
    """One live view and its viewers."""

    render: Callable[[], LivePart]
    run_id: UUID | None
    frame: _LiveFrame | None = None
    viewers: set[asyncio.Event] = field(default_factory=set)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    broken: bool = False
    task: asyncio.Task[None] | None = None

    def notify(self) -> None:
        for viewer in self.viewers:
            viewer.set()


class LiveViews:
    """The live views of a process.

    Attributes:
        poll_s: Seconds between renderings without a commit.
        pause_s: Shortest time between two renderings of a view, in seconds.
    """

    def __init__(self, *, poll_s: float = POLL_S, pause_s: float = PAUSE_S) -> None:
        self.poll_s = poll_s
        self.pause_s = pause_s
        self._views: dict[str, _LiveView] = {}
        self._threads = CapacityLimiter(_THREADS)
        self._closing = False

    @property
    def viewers(self) -> int:
        """Number of open streams."""
        return sum(len(view.viewers) for view in self._views.values())

    def wake(self, run_id: UUID) -> None:
        """Render the views of a run and the views of all runs again."""
        for view in self._views.values():
            if view.run_id is None or view.run_id == run_id:
                view.changed.set()

    def close(self) -> None:
        """End every stream; viewers reconnect, possibly to another process."""
        self._closing = True
        for view in self._views.values():
            view.notify()

    def watch(self, key: str, render: Callable[[], LivePart], *, run_id: UUID | None, seen: str) -> StreamingResponse:
        """Return the event stream of a view.

        Args:
            key: Identity of the view: equal keys have equal parts.
            render: Renders the part; called in a thread.
            run_id: The run whose commits change the view; None for all runs.
            seen: Id of the frame that the viewer already has.

        Raises:
            UnavailableError: The process is stopping, or too many streams are open.
        """
        if self._closing:
            raise UnavailableError("this API process is stopping.", remedy="Connect again in a moment.")
        if self.viewers >= MAX_STREAMS:
            raise UnavailableError(f"this process already serves {MAX_STREAMS} streams, its limit.")
        view = self._views.get(key)
        if view is None:
            view = self._views[key] = _LiveView(render, run_id)
            view.task = asyncio.create_task(self._serve(key, view), name=f"view {key}")
            view.task.add_done_callback(_log_failure)
        wakeup = asyncio.Event()
        wakeup.set()
        view.viewers.add(wakeup)
        return _LiveResponse(self._chunks(view, wakeup, seen), lambda: self._leave(key, view, wakeup))

    def _leave(self, key: str, view: _LiveView, wakeup: asyncio.Event) -> None:
        view.viewers.discard(wakeup)
        if not view.viewers:
            if self._views.get(key) is view:
                del self._views[key]
            if view.task is not None:
                view.task.cancel()

    async def _serve(self, key: str, view: _LiveView) -> None:
        try:
            while not (view.frame and view.frame.final):
                view.changed.clear()
                frame = _LiveFrame.of(await to_thread.run_sync(view.render, limiter=self._threads))
                if view.frame is None or frame.id != view.frame.id:
                    view.frame = frame
                    view.notify()
                await asyncio.sleep(self.pause_s)
                await _wait(view.changed, self.poll_s)
        except SpeciateError as error:
            _log.warning("view %s ended: %s", key, error)
        finally:
            view.broken = not (view.frame and view.frame.final)
            if self._views.get(key) is view:
                del self._views[key]
            view.notify()

    async def _chunks(self, view: _LiveView, wakeup: asyncio.Event, seen: str) -> AsyncIterator[bytes]:
        yield _OPENING
        while not self._closing:
            if not await _wait(wakeup, HEARTBEAT_S):
                yield _HEARTBEAT
            wakeup.clear()
            # A local name: the view may get a new frame while this one is sent.
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


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("%s cannot be rendered", task.get_name(), exc_info=error)


async def _wait(event: asyncio.Event, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
