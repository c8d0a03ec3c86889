"""Manage the open event streams of this process: viewers, limits, wake-ups from Redis and shutdown."""

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
from speciate.schema.runs import EventRecord, RunRecord
from speciate.storage.stores import Stores

MAX_STREAMS: Final = 1000
"""Maximum number of open streams of one process."""

MEDIA_TYPE: Final = "text/event-stream"
_READERS: Final = 4
_REDIS_RETRY_S: Final = 1.0
_PING_S = 15.0
"""Seconds without a commit after which the listener asks Redis for a sign of life, and waits for it."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


class EventHub:
    """The open event streams of this process.

    Attributes:
        max_streams: Maximum number of open streams.
        heartbeat_s: Seconds of silence after which a stream sends a comment.
        poll_s: Seconds between polls of a watched run without a wake-up from Redis.
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
        # Separate threads, so that streams and requests do not delay each other.
        self._threads = CapacityLimiter(_READERS)

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return len(self._viewers)

    @property
    def channels(self) -> int:
        """Number of running runs with viewers."""
        return len(self._channels)

    async def join(self, run_id: UUID, after: int) -> Viewer:
        """Return a viewer of the events of a run. The caller must ``leave`` it.

        Args:
            run_id: The run.
            after: Sequence number of the last event to skip.

        Raises:
            NotFoundError: The run does not exist.
            InvalidInputError: The run does not have that many events.
            UnavailableError: Too many streams are open.
        """
        if self.streams >= self.max_streams:
            raise UnavailableError(
                f"this process has {self.max_streams} open event streams, which is its limit.",
                remedy="Close some, read the events as JSON pages, or run another API process.",
            )
        reader = _StoredEvents(self._stores, run_id, self._threads)
        run = await reader.run()
        if self._closing:  # checked after the last await, since close_streams() no longer sees new viewers
            raise UnavailableError("this API process is shutting down.", remedy="Reconnect in a moment.")
        if after > run.last_event:
            field_error = FieldError(f"is {after}, but the run has only {run.last_event} events", where="Last-Event-ID")
            raise InvalidInputError(f"The stream position is not valid: {field_error}", field_errors=(field_error,))
        goal = run.last_event if run.state.ended else None
        viewer = Viewer(reader, after=after, goal=goal, heartbeat_s=self.heartbeat_s)
        self._viewers.add(viewer)
        if goal is None:
            self._channel(run, reader).viewers.add(viewer)
        return viewer

    def leave(self, viewer: Viewer) -> None:
        """Remove a viewer, and its channel after the last viewer."""
        self._viewers.discard(viewer)
        for channel, task in list(self._channels.values()):
            channel.viewers.discard(viewer)
            if not channel.viewers:
                del self._channels[channel.run_id]
                task.cancel()

    def wake(self, run_id: UUID) -> None:
        """Check for new events of a run, if it has viewers."""
        if run_id in self._channels:
            self._channels[run_id][0].wake()

    def close_streams(self) -> None:
        """End every stream without an ``end`` event, so that clients reconnect to another process."""
        self._closing = True
        for viewer in self._viewers:
            viewer.close()

    async def close(self) -> None:
        """Close all streams and stop their tasks."""
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
            _log.error("cannot read the events of run %s", channel.run_id, exc_info=error)
            for viewer in channel.viewers:
                viewer.close()


class EventStreamResponse(StreamingResponse):
    """A streaming response that removes its viewer when the connection ends."""

    def __init__(self, hub: EventHub, viewer: Viewer) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(viewer.chunks(), headers=headers, media_type=MEDIA_TYPE)
        self._leave = functools.partial(hub.leave, viewer)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events until the run has ended or the client has disconnected."""
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
            raise UnavailableError("all database connections are in use.") from error


async def listen_for_commits(redis_url: str, wake: Callable[[UUID], None]) -> None:
    """Call ``wake`` with the id of every run that commits, until cancelled. Reconnects when Redis is unavailable."""
    unavailable = False
    while True:
        try:
            async with Redis.from_url(redis_url, socket_connect_timeout=5) as client, client.pubsub() as channel:
                await channel.subscribe(COMMIT_CHANNEL)
                unavailable, answered = False, True
                while True:
                    message = await channel.get_message(timeout=_PING_S)
                    if message is not None:
                        answered = True
                        _forward(message, wake)
                    elif answered:
                        answered = False
                        await channel.ping()
                    else:  # the host may have vanished: reading would never fail
                        raise redis.TimeoutError(f"no answer for {_PING_S:g} s")
        except (redis.RedisError, OSError) as error:
            if not unavailable:
                _log.warning("Redis is unavailable, event streams poll PostgreSQL: %s", error)
            unavailable = True
        await asyncio.sleep(_REDIS_RETRY_S)


def log_listener_failure(task: asyncio.Task[None]) -> None:
    """Log why the listener ended, unless it was cancelled."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("the commit listener failed, event streams poll PostgreSQL", exc_info=error)


def _forward(message: dict[str, Any], wake: Callable[[UUID], None]) -> None:
    if message["type"] != "message":
        return
    try:
        wake(UUID(bytes(message["data"]).decode("ascii")))
    except ValueError:
        _log.warning("invalid message on Redis channel %s", COMMIT_CHANNEL)
