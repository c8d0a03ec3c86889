"""Deliver the events of one run to all of its viewers, reading each event once per process.

PostgreSQL is the source of truth. A viewer first reads the events it has missed, then receives new ones from the
channel, and returns to PostgreSQL whenever the two leave a gap. No event is lost or repeated, whatever Redis does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol
from uuid import UUID

from speciate.domain.errors import UnavailableError
from speciate.domain.event import EventKind
from speciate.schema.runs import EventRecord

POLL_S: Final = 1.0
"""Seconds between polls of PostgreSQL when nothing wakes the channel."""

HEARTBEAT_S: Final = 15.0
"""Seconds of silence after which a comment keeps the connection open."""

PAGE: Final = 500
"""Maximum number of events to read at once."""

QUEUE: Final = 1000
"""Events to queue for a slow viewer before it falls back to PostgreSQL."""

END: Final = b"event: end\ndata: {}\n\n"
_OPENING: Final = b"retry: 1000\n\n"
_HEARTBEAT: Final = b": still here\n\n"
_ENDINGS: Final = frozenset({EventKind.RUN_COMPLETED, EventKind.RUN_FAILED, EventKind.RUN_CANCELLED})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EventFrame:
    """An encoded event, shared by all viewers."""

    seq: int
    text: bytes

    @classmethod
    def of(cls, event: EventRecord) -> EventFrame:
        """Encode an event. JSON has no line breaks, so untrusted text cannot end the frame early."""
        return cls(event.seq, f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n".encode())


class EventReader(Protocol):
    """Reads the events of a run without blocking the event loop."""

    async def events(self, after: int) -> tuple[EventRecord, ...]:
        """Return at most ``PAGE`` events after a sequence number."""
        ...

    async def end(self) -> int | None:
        """Return the sequence number of the last event if the run has ended, else None."""
        ...


class Viewer:
    """One open stream.

    Attributes:
        after: Sequence number of the last event sent.
        goal: Sequence number of the last event of the run, once known.
    """

    def __init__(self, reader: EventReader, *, after: int, goal: int | None, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.after = after
        self.goal = goal
        self._reader = reader
        self._heartbeat_s = heartbeat_s
        self._pending: deque[EventFrame] = deque()
        self._news = asyncio.Event()
        self._stale = True  # PostgreSQL has events that this viewer was not offered
        self._closed = False

    def offer(self, frames: Sequence[EventFrame]) -> None:
        """Queue new events. When the queue is full, drop it and read PostgreSQL later."""
        self._pending.extend(frames)
        if len(self._pending) > QUEUE:
            self._pending.clear()
            self._stale = True
        self._news.set()

    def finish(self, goal: int) -> None:
        """Set the last event of the run."""
        self.goal = goal
        self._news.set()

    def close(self) -> None:
        """End the stream without an ``end`` event, so that the client reconnects, perhaps to another process."""
        self._closed = True
        self._news.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the encoded stream until all events of an ended run have been sent."""
        yield _OPENING
        while not self._closed:
            if self.goal is not None and self.after >= self.goal:
                yield END
                return
            try:
                frames = await (self._missed() if self._stale else self._offered())
            except UnavailableError as error:
                _log.warning("event stream interrupted: %s", error)
                return
            if frames:
                self.after = frames[-1].seq
                yield b"".join(frame.text for frame in frames)
            elif not self._stale and self.goal is None:
                yield _HEARTBEAT

    async def _missed(self) -> list[EventFrame]:
        # Events offered from here on continue what is read now, or leave a gap that is detected.
        self._stale = False
        events = await self._reader.events(self.after)
        self._stale = self._stale or len(events) == PAGE
        return [EventFrame.of(event) for event in events]

    async def _offered(self) -> list[EventFrame]:
        await _first(self._news.wait, self._heartbeat_s)
        self._news.clear()
        frames = [frame for frame in self._pending if frame.seq > self.after]
        self._pending.clear()
        gap = bool(frames) and frames[0].seq != self.after + 1
        if gap or (not frames and self.goal is not None):
            self._stale = True
            return []
        return frames


class EventChannel:
    """Reads the new events of one run for all of its viewers.

    Args:
        run_id: The run.
        reader: Reads the events.
        after: Sequence number of the last event to skip.
        poll_s: Seconds between polls when nothing wakes the channel.
    """

    def __init__(self, run_id: UUID, reader: EventReader, *, after: int, poll_s: float = POLL_S) -> None:
        self.viewers: set[Viewer] = set()
        self.run_id = run_id
        self._reader = reader
        self._last = after
        self._poll_s = poll_s
        self._wake = asyncio.Event()
        self._ended = False

    def wake(self) -> None:
        """Check for new events now."""
        self._wake.set()

    async def serve(self) -> None:
        """Distribute new events until the run has ended."""
        goal = None
        while goal is None:
            await _first(self._wake.wait, self._poll_s)
            self._wake.clear()
            try:
                goal = await self._distribute()
            except UnavailableError as error:
                _log.warning("events of run %s are delayed: %s", self.run_id, error)
        for viewer in self.viewers:
            viewer.finish(goal)

    async def _distribute(self) -> int | None:
        full = True
        while full:
            events = await self._reader.events(self._last)
            full = len(events) == PAGE
            # Remembered across calls, because a failure below repeats this method without these events.
            self._ended = self._ended or any(event.kind in _ENDINGS for event in events)
            if events:
                self._last = events[-1].seq
                frames = [EventFrame.of(event) for event in events]
                for viewer in self.viewers:
                    viewer.offer(frames)
        return await self._reader.end() if self._ended else None


async def _first(wait: Callable[[], Awaitable[object]], limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await wait()
    except TimeoutError:
        pass
