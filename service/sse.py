"""The streams of this process: who watches which run, how many there may be, and how they end."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from uuid import UUID

import redis
import sqlalchemy.exc
from anyio import CapacityLimiter, to_thread
from redis.asyncio import Redis
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from service.events import HEARTBEAT_S, PAGE, POLL_S, EventChannel, Viewer
from speciate.domain.errors import FieldError, InvalidInputError, UnavailableError
from speciate.messaging.signals import COMMIT_CHANNEL
from speciate.ports.records.runs import EventRecord, RunRecord
from speciate.storage.stores import Stores

MAX_STREAMS: Final = 1000
"""Open streams of one process."""

MEDIA_TYPE: Final = "text/event-stream"
_READERS: Final = 4
_REDIS_RETRY_S: Final = 1.0
_log = logging.getLogger(__name__)
T = TypeVar("T")


class EventHub:
    """All open streams of this process.

    Attributes:
        max_streams: Streams that may be open at once.
        heartbeat_s: After how much silence a stream shows that it lives.
        poll_s: How often a watched run is looked at when Redis wakes nobody.
    """

    def __init__(
        self,
        stores: Stores,
        *,
        max_streams: int = MAX_STREAMS,
        heartbeat_s: float = HEARTBEAT_S,
        poll_s: float = POLL_S,
    ) -> None:
        self.max_streams = max_streams
        self._stores = stores
        self.heartbeat_s = heartbeat_s
        self.poll_s = poll_s
        self._closing = False
        self._viewers: set[Viewer] = set()
        self._channels: dict[UUID, tuple[EventChannel, asyncio.Task[None]]] = {}
        # Threads of their own: neither do streams wait for slow requests nor the other way round.
        self._threads = CapacityLimiter(_READERS)

    @property
    def streams(self) -> int:
        """Open streams."""
        return len(self._viewers)

    @property
    def channels(self) -> int:
        """Runs that are being watched while they go on."""
        return len(self._channels)

    async def join(self, run_id: UUID, after: int) -> Viewer:
        """Return a viewer of a run's events; whoever gets it has to ``leave``.

        Args:
            run_id: The run.
            after: Sequence number of the last event that the viewer has.

        Raises:
            NotFoundError: There is no such run.
            InvalidInputError: The run never had that many events.
            UnavailableError: Too many streams are open.
        """
        if self.streams >= self.max_streams:
            raise UnavailableError(
                f"{self.max_streams} streams of events are open, which is the most this process serves.",
                remedy="Close some, ask for the events as JSON pages, or run another API process.",
            )
        reader = _StoredEvents(self._stores, run_id, self._threads)
        run = await reader.run()
        if self._closing:  # looked at after the last wait: a viewer that came now would be ended by nobody
            raise UnavailableError("this process of the API is stopping.", remedy="Connect again in a moment.")
        if after > run.last_event:
            flaw = FieldError(f"is {after}, but the run has only {run.last_event} events", where="Last-Event-ID")
            raise InvalidInputError(f"The position in the stream is not valid: {flaw}", flaws=(flaw,))
        goal = run.last_event if run.state.ended else None
        viewer = Viewer(reader, after=after, goal=goal, heartbeat_s=self.heartbeat_s)
        self._viewers.add(viewer)
        if goal is None:
            self._channel(run, reader).viewers.add(viewer)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Forget a viewer, and its channel with the last one."""
        self._viewers.discard(viewer)
        for channel, task in list(self._channels.values()):
            channel.viewers.discard(viewer)
            if not channel.viewers:
                del self._channels[channel.run_id]
                task.cancel()

    def wake(self, run_id: UUID) -> None:
        """Look for new events of a run, if somebody watches it."""
        if run_id in self._channels:
            self._channels[run_id][0].wake()

    def close_streams(self) -> None:
        """End every stream without an ``end``: this process stops, its viewers connect to another."""
        self._closing = True
        for viewer in self._viewers:
            viewer.close()

    async def close(self) -> None:
        """Stop everything."""
        self.close_streams()
        tasks = [task for _, task in self._channels.values()]
        self._channels.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _channel(self, run: RunRecord, reader: _StoredEvents) -> EventChannel:
        if run.id not in self._channels:
            channel = EventChannel(run.id, reader, after=run.last_event, poll_s=self.poll_s)
            task = asyncio.create_task(channel.serve(), name=f"events of {run.id}")
            task.add_done_callback(functools.partial(self._over, channel))
            self._channels[run.id] = channel, task
        return self._channels[run.id][0]

    def _over(self, channel: EventChannel, task: asyncio.Task[None]) -> None:
        held = self._channels.get(channel.run_id)
        if held is not None and held[0] is channel:
            del self._channels[channel.run_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the events of run %s cannot be read", channel.run_id, exc_info=error)
            for viewer in channel.viewers:
                viewer.close()


class EventStreamResponse(StreamingResponse):
    """Sends a viewer's events, and has it leave however the connection ends."""

    def __init__(self, hub: EventHub, viewer: Viewer) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(viewer.chunks(), headers=headers, media_type=MEDIA_TYPE)
        self._leave = functools.partial(hub.leave, viewer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the run has ended or nobody listens."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


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
            raise UnavailableError("every database connection is in use.") from error


async def listen_for_commits(redis_url: str, wake: Callable[[UUID], None]) -> None:
    """Call ``wake`` with the id of every run that commits something, until cancelled; survives that Redis is away."""
    away = False
    while True:
        try:
            async with Redis.from_url(redis_url, socket_connect_timeout=5) as client, client.pubsub() as channel:
                await channel.subscribe(COMMIT_CHANNEL)
                away = False
                async for message in channel.listen():
                    _forward(message, wake)
        except (redis.RedisError, OSError) as error:
            if not away:
                _log.warning("Redis is away, streams of events ask PostgreSQL instead: %s", error)
            away = True
        await asyncio.sleep(_REDIS_RETRY_S)


def log_listener_failure(task: asyncio.Task[None]) -> None:
    """Log why listening ended, unless it was told to."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("commits are not heard any more, streams of events ask PostgreSQL instead", exc_info=error)


def _forward(message: dict[str, Any], wake: Callable[[UUID], None]) -> None:
    if message["type"] != "message":
        return
    try:
        wake(UUID(bytes(message["data"]).decode("ascii")))
    except ValueError:
        _log.warning("Redis channel %s carried something that is no run", COMMIT_CHANNEL)
