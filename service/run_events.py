"""Deliver the events of one run to all of its viewers, reading each event once per process.

PostgreSQL is the source of truth. A viewer takes new events from its channel, and reads those it has missed from
PostgreSQL. No event is lost or repeated, whatever Redis does.
"""

import functools
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar
from uuid import UUID

from anyio import CapacityLimiter, to_thread
from starlette.responses import StreamingResponse

from service.streams import Channel, StreamHub, wait
from speciate.domain.errors import UnavailableError, invalid_field
from speciate.domain.event import EventKind
from speciate.schema.runs import EventRecord, RunRecord
from speciate.storage.stores import Stores

POLL_S: Final = 1.0
PAGE: Final = 500
"""Maximum number of events to read at once."""

LATEST: Final = 200
"""Events that a channel keeps; a viewer that is further behind reads PostgreSQL."""

_READERS: Final = 4
_ENDINGS: Final = frozenset({EventKind.RUN_COMPLETED, EventKind.RUN_FAILED, EventKind.RUN_CANCELLED})
_log = logging.getLogger(__name__)
T = TypeVar("T")


def event_frame(event: EventRecord) -> tuple[int, bytes]:
    """Return the number of an event and its text in a stream, which all viewers share."""
    return event.seq, f"id: {event.seq}\nevent: {event.kind}\ndata: {event.model_dump_json()}\n\n".encode()


@dataclass(frozen=True)
class StoredEvents:
    """Reads the events of a run without blocking the event loop."""

    stores: Stores
    run_id: UUID
    threads: CapacityLimiter

    async def run(self) -> RunRecord:
        return await self._read(functools.partial(self.stores.runs.get, self.run_id))

    async def events(self, after: int) -> tuple[EventRecord, ...]:
        """Return at most ``PAGE`` events after a sequence number."""
        return await self._read(functools.partial(self.stores.queries.events, self.run_id, after=after, limit=PAGE))

    async def end(self) -> int | None:
        """Return the sequence number of the last event if the run has ended, else None."""
        run = await self.run()
        return run.last_event if run.state.ended else None

    async def _read(self, call: Callable[[], T]) -> T:
        return await to_thread.run_sync(call, limiter=self.threads)


class EventChannel(Channel[int]):
    """Reads the new events of one run and keeps the latest for its viewers, whose positions are sequence numbers.

    ``goal`` is the sequence number of the last event of the run, once known.
    """

    def __init__(
        self, run_id: UUID, reader: StoredEvents, *, last: int, goal: int | None = None, poll_s: float = POLL_S
    ) -> None:
        """Begin after event ``last``."""
        super().__init__(run_id)
        self.goal = goal
        self._reader = reader
        self._last = last
        self._poll_s = poll_s
        self._ended = False
        self._latest: deque[tuple[int, bytes]] = deque(maxlen=LATEST)

    async def serve(self) -> None:
        while self.goal is None:
            await wait(self.changed, self._poll_s)
            try:
                self.goal = await self._read()
            except UnavailableError as error:
                _log.warning("events of run %s are delayed: %s", self.run_id, error)
            self.notify()

    async def news(self, position: int) -> tuple[bytes, int] | None:
        frames = [frame for frame in self._latest if frame[0] > position]
        if position < self._last and (not frames or frames[0][0] > position + 1):
            frames = [event_frame(event) for event in await self._reader.events(position)]
        return (b"".join(text for _, text in frames), frames[-1][0]) if frames else None

    def is_over(self, position: int) -> bool:
        return self.goal is not None and position >= self.goal

    async def _read(self) -> int | None:
        full = True
        while full:
            events = await self._reader.events(self._last)
            full = len(events) == PAGE
            # Remembered across calls, because a failure below repeats this method without these events.
            self._ended = self._ended or any(event.kind in _ENDINGS for event in events)
            self._latest.extend(map(event_frame, events))
            self._last = events[-1].seq if events else self._last
        return await self._reader.end() if self._ended else None


class EventHub(StreamHub):
    """The open streams of events."""

    def __init__(self, stores: Stores) -> None:
        super().__init__(poll_s=POLL_S)
        self._stores = stores
        # Separate threads, so that streams and requests do not delay each other.
        self._threads = CapacityLimiter(_READERS)

    async def watch(self, run_id: UUID, after: int) -> StreamingResponse:
        """Return the stream of the events of a run after a sequence number.

        ``UnavailableError`` if too many streams are open, or the process is shutting down.
        """
        self.require_capacity()
        reader = StoredEvents(self._stores, run_id, self._threads)
        run = await reader.run()
        self.require_capacity()  # again, since ``close_streams`` may have been called in the meantime
        if after > run.last_event:
            message = f"is {after}, but the run has only {run.last_event} events"
            raise invalid_field("The stream position", "Last-Event-ID", message)

        def channel(goal: int | None) -> EventChannel:
            return EventChannel(run_id, reader, last=run.last_event, goal=goal, poll_s=self.poll_s)

        ended = run.state.ended
        return self.open(channel(run.last_event) if ended else self.channel(run_id, lambda: channel(None)), after)
