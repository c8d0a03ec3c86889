"""Deliver the events of one run to all of its viewers, reading each event once per process.

PostgreSQL is the source of truth. A viewer first reads the events it has missed, then receives new ones from the
channel, and returns to PostgreSQL whenever the two leave a gap. No event is lost or repeated, whatever Redis does.
"""

from __future__ import annotations

import functools
import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar
from uuid import UUID

import sqlalchemy.exc
from anyio import CapacityLimiter, to_thread
from starlette.responses import StreamingResponse

from service.streams import HEARTBEAT, HEARTBEAT_S, Channel, StreamHub, Viewer, wait
from speciate.domain.errors import FieldError, InvalidInputError, UnavailableError
from speciate.domain.event import EventKind
from speciate.schema.runs import EventRecord, RunRecord
from speciate.storage.stores import Stores

POLL_S: Final = 1.0
PAGE: Final = 500
"""Maximum number of events to read at once."""

QUEUE: Final = 1000
"""Events to queue for a slow viewer before it falls back to PostgreSQL."""

_READERS: Final = 4
_ENDINGS: Final = frozenset({EventKind.RUN_COMPLETED, EventKind.RUN_FAILED, EventKind.RUN_CANCELLED})
_log = logging.getLogger(__name__)
T = TypeVar("T")


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

    async def events(self, after: int) -> tuple[EventRecord, ...]: ...

    async def end(self) -> int | None:
        """Return the sequence number of the last event if the run has ended, else None."""
        ...


class EventViewer(Viewer):
    """One open stream of events.

    Attributes:
        after: Sequence number of the last event sent.
        goal: Sequence number of the last event of the run, once known.
    """

    def __init__(self, reader: EventReader, *, after: int, goal: int | None, heartbeat_s: float = HEARTBEAT_S) -> None:
        super().__init__(heartbeat_s)
        self.after = after
        self.goal = goal
        self._reader = reader
        self._pending: deque[EventFrame] = deque()
        self._stale = True  # PostgreSQL has events that this viewer was not offered

    def offer(self, frames: Sequence[EventFrame]) -> None:
        """Queue new events. When the queue is full, drop it and read PostgreSQL later."""
        self._pending.extend(frames)
        if len(self._pending) > QUEUE:
            self._pending.clear()
            self._stale = True
        self.notify()

    def finish(self, goal: int) -> None:
        self.goal = goal
        self.notify()

    async def next_chunk(self) -> bytes | None:
        while self.goal is None or self.after < self.goal:
            frames = await (self._missed() if self._stale else self._offered())
            if frames:
                self.after = frames[-1].seq
                return b"".join(frame.text for frame in frames)
            if self.closed or (not self._stale and self.goal is None):
                return HEARTBEAT
        return None

    async def _missed(self) -> list[EventFrame]:
        # Events offered from here on continue what is read now, or leave a gap that is detected.
        self._stale = False
        events = await self._reader.events(self.after)
        self._stale = self._stale or len(events) == PAGE
        return [EventFrame.of(event) for event in events]

    async def _offered(self) -> list[EventFrame]:
        await self.wait_for_news()
        frames = [frame for frame in self._pending if frame.seq > self.after]
        self._pending.clear()
        gap = bool(frames) and frames[0].seq != self.after + 1
        if gap or (not frames and self.goal is not None):
            self._stale = True
            return []
        return frames


class EventChannel(Channel[EventViewer]):
    """Reads the new events of one run."""

    def __init__(self, run_id: UUID, reader: EventReader, *, after: int, poll_s: float = POLL_S) -> None:
        super().__init__(run_id)
        self._reader = reader
        self._last = after
        self._poll_s = poll_s
        self._ended = False

    async def serve(self) -> None:
        goal = None
        while goal is None:
            await wait(self.changed, self._poll_s)
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


class EventHub(StreamHub):
    """The open streams of events."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(poll_s=POLL_S)
        self._stores = stores
        # Separate threads, so that streams and requests do not delay each other.
        self._threads = CapacityLimiter(_READERS)

    async def watch(self, run_id: UUID, after: int) -> StreamingResponse:
        """Return the stream of the events of a run.

        Args:
            run_id: The run.
            after: Sequence number of the last event to skip.

        Raises:
            NotFoundError: The run does not exist.
            InvalidInputError: The run does not have that many events.
            UnavailableError: Too many streams are open, or the process is shutting down.
        """
        self.require_capacity()
        reader = _StoredEvents(self._stores, run_id, self._threads)
        run = await reader.run()
        self.require_capacity()  # again, since ``close_streams`` may have been called in the meantime
        if after > run.last_event:
            field_error = FieldError(f"is {after}, but the run has only {run.last_event} events", where="Last-Event-ID")
            raise InvalidInputError(f"The stream position is not valid: {field_error}", field_errors=(field_error,))
        goal = run.last_event if run.state.ended else None
        channel = None
        if goal is None:
            channel = self.channel(
                run_id, lambda: EventChannel(run_id, reader, after=run.last_event, poll_s=self.poll_s)
            )
        return self.open(EventViewer(reader, after=after, goal=goal, heartbeat_s=self.heartbeat_s), channel)


@dataclass(frozen=True)
class _StoredEvents:
    stores: Stores
    run_id: UUID
    threads: CapacityLimiter

    async def run(self) -> RunRecord:
        return await self._read(functools.partial(self.stores.runs.get, self.run_id))

    async def events(self, after: int) -> tuple[EventRecord, ...]:
        return await self._read(functools.partial(self.stores.queries.events, self.run_id, after=after, limit=PAGE))

    async def end(self) -> int | None:
        run = await self.run()
        return run.last_event if run.state.ended else None

    async def _read(self, call: Callable[[], T]) -> T:
        try:
            return await to_thread.run_sync(call, limiter=self.threads)
        except sqlalchemy.exc.TimeoutError as error:
            raise UnavailableError("all database connections are in use.") from error
