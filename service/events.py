"""One watched run: its new events are read once in this process, however many viewers it has.

PostgreSQL is the truth: a viewer first reads what it has missed, then takes what the channel hands out, and goes back
to PostgreSQL whenever the two do not join without a gap. So nothing is lost or sent twice, whatever Redis does.
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
from speciate.ports.records.runs import EventRecord

POLL_S: Final = 1.0
"""How often PostgreSQL is asked when nothing wakes the channel."""

HEARTBEAT_S: Final = 15.0
"""After how much silence a comment shows that the stream lives."""

PAGE: Final = 500
"""Most events that are read at once."""

QUEUE: Final = 1000
"""Events that wait for a slow viewer before it has to read them from PostgreSQL."""

END: Final = b"event: end\ndata: {}\n\n"
_OPENING: Final = b"retry: 1000\n\n"
_HEARTBEAT: Final = b": still here\n\n"
_ENDINGS: Final = frozenset({EventKind.RUN_COMPLETED, EventKind.RUN_FAILED, EventKind.RUN_CANCELLED})
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EventFrame:
    """An event as it is sent; written once for all viewers."""

    seq: int
    text: bytes

    @classmethod
    def of(cls, event: EventRecord) -> EventFrame:
        """Return the frame of an event; JSON has no line ends, so hostile text cannot end the frame early."""
        return cls(event.seq, f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n".encode())


class EventReader(Protocol):
    """Reads a run's events without blocking the event loop."""

    async def events(self, after: int) -> tuple[EventRecord, ...]:
        """Return at most ``PAGE`` events above a sequence number."""
        ...

    async def end(self) -> int | None:
        """Return the sequence number of the last event once the run has ended, else None."""
        ...


class Viewer:
    """One open stream.

    Attributes:
        after: Sequence number of the last event that was sent.
        goal: Sequence number after which nothing comes, once that is known.
    """

    def __init__(self, reader: EventReader, *, after: int, goal: int | None, heartbeat_s: float = HEARTBEAT_S) -> None:
        self.after = after
        self.goal = goal
        self._reader = reader
        self._heartbeat_s = heartbeat_s
        self._pending: deque[EventFrame] = deque()
        self._news = asyncio.Event()
        self._stale = True  # PostgreSQL holds events that were never offered here
        self._closed = False

    def offer(self, frames: Sequence[EventFrame]) -> None:
        """Hand over new events; a viewer that is too slow forgets them and reads them from PostgreSQL later."""
        self._pending.extend(frames)
        if len(self._pending) > QUEUE:
            self._pending.clear()
            self._stale = True
        self._news.set()

    def finish(self, goal: int) -> None:
        """Say which event is the last one."""
        self.goal = goal
        self._news.set()

    def close(self) -> None:
        """End the stream without an ``end``: the viewer will connect again, perhaps to another process."""
        self._closed = True
        self._news.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield what is sent, until the run has ended and all of its events were sent."""
        yield _OPENING
        while not self._closed:
            if self.goal is not None and self.after >= self.goal:
                yield END
                return
            try:
                frames = await (self._missed() if self._stale else self._handed_over())
            except UnavailableError as error:
                _log.warning("a stream of events breaks off: %s", error)
                return
            if frames:
                self.after = frames[-1].seq
                yield b"".join(frame.text for frame in frames)
            elif not self._stale and self.goal is None:
                yield _HEARTBEAT

    async def _missed(self) -> list[EventFrame]:
        # What is handed over from here on joins what is read now, or leaves a gap that is noticed.
        self._stale = False
        events = await self._reader.events(self.after)
        self._stale = self._stale or len(events) == PAGE
        return [EventFrame.of(event) for event in events]

    async def _handed_over(self) -> list[EventFrame]:
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
        reader: Where it reads.
        after: Sequence number from which it reads on.
        poll_s: How often it asks when nothing wakes it.
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
        """Have it look for new events now."""
        self._wake.set()

    async def serve(self) -> None:
        """Hand out new events until the run has ended."""
        goal = None
        while goal is None:
            await _first(self._wake.wait, self._poll_s)
            self._wake.clear()
            try:
                goal = await self._hand_out()
            except UnavailableError as error:
                _log.warning("events of run %s are late: %s", self.run_id, error)
        for viewer in self.viewers:
            viewer.finish(goal)

    async def _hand_out(self) -> int | None:
        full = True
        while full:
            events = await self._reader.events(self._last)
            full = len(events) == PAGE
            # Kept, since what comes after may fail and is then tried again without these events.
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
