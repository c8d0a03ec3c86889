"""Streams of server-sent events: channels that read once for all of their viewers, and the hub that opens both.

The events of runs (``service.run_events``) and the live parts of pages (``service.dashboard.live``) are such streams.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Hashable
from typing import Any, Final, Generic, TypeVar, cast
from uuid import UUID

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from speciate.domain.errors import SpeciateError, UnavailableError

EVENT_STREAM: Final = "text/event-stream"
MAX_STREAMS: Final = 1000
"""Maximum number of open streams of a hub."""

HEARTBEAT_S: Final = 15.0
"""Seconds of silence after which a comment keeps the connection open."""

_END: Final = b"event: end\ndata: {}\n\n"
_HEARTBEAT: Final = b": still here\nevent: heartbeat\n\n"
_OPENING: Final = b"retry: 1000\n\n"
_log = logging.getLogger(__name__)
P = TypeVar("P")
C = TypeVar("C", bound="Channel[Any]")


class Channel(ABC, Generic[P]):
    """Reads for all viewers of one subject, each of which is at a position of type ``P``.

    Attributes:
        run_id: The run whose commits wake the channel; None for the commits of all runs.
        changed: Set by a commit.
        viewers: The open streams.
    """

    def __init__(self, run_id: UUID | None) -> None:
        self.run_id = run_id
        self.changed = asyncio.Event()
        self.viewers: set[Viewer[P]] = set()

    @abstractmethod
    async def serve(self) -> None:
        """Notify the viewers of news until there will be no more."""

    @abstractmethod
    async def news(self, position: P) -> tuple[bytes, P] | None:
        """Return what comes after a position, and the position after it."""

    @abstractmethod
    def is_over(self, position: P) -> bool:
        """Return True if nothing will come after a position."""

    def notify(self) -> None:
        for viewer in self.viewers:
            viewer.notify()


class Viewer(Generic[P]):
    def __init__(self, channel: Channel[P], position: P, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._channel = channel
        self._position = position
        self._heartbeat_s = heartbeat_s
        self._notified = asyncio.Event()
        self._closed = False

    def notify(self) -> None:
        self._notified.set()

    def close(self) -> None:
        """End the stream without an ``end`` event, so that the client reconnects, perhaps to another process."""
        self._closed = True
        self._notified.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        yield _OPENING
        while not self._closed:
            try:
                news = await self._channel.news(self._position)
            except UnavailableError as error:
                _log.warning("stream interrupted: %s", error)
                return
            if news is not None:
                chunk, self._position = news
                yield chunk
            elif self._channel.is_over(self._position):
                yield _END
                return
            elif not await wait(self._notified, self._heartbeat_s):
                yield _HEARTBEAT


class StreamHub:
    """The open streams of one kind in this process.

    Attributes:
        poll_s: Seconds after which a channel reads without a commit.
        heartbeat_s: Seconds of silence after which a stream sends a comment.
        max_streams: Maximum number of open streams.
    """

    def __init__(self, *, poll_s: float, heartbeat_s: float = HEARTBEAT_S, max_streams: int = MAX_STREAMS) -> None:
        self.poll_s = poll_s
        self.heartbeat_s = heartbeat_s
        self.max_streams = max_streams
        self._closing = False
        self._viewers: set[Viewer[Any]] = set()
        self._channels: dict[Hashable, tuple[Channel[Any], asyncio.Task[None]]] = {}

    @property
    def streams(self) -> int:
        return len(self._viewers)

    def require_capacity(self) -> None:
        """Raise ``UnavailableError`` if the process is shutting down or too many streams are open."""
        if self._closing:
            raise UnavailableError("this API process is shutting down.", remedy="Reconnect in a moment.")
        if self.streams >= self.max_streams:
            raise UnavailableError(
                f"this process has {self.max_streams} open event streams, which is its limit.",
                remedy="Close some, read the events as JSON pages, or run another API process.",
            )

    def channel(self, key: Hashable, make: Callable[[], C]) -> C:
        """Return the channel of a subject. Channels of equal keys are the same until the last viewer leaves."""
        if key in self._channels:
            return cast("C", self._channels[key][0])
        channel = make()
        self._channels[key] = channel, asyncio.create_task(self._serve(key, channel), name=f"stream {key}")
        return channel

    def open(self, channel: Channel[P], position: P) -> StreamingResponse:
        """Return the response that sends what comes after a position of a channel."""
        viewer = Viewer(channel, position, self.heartbeat_s)
        self._viewers.add(viewer)
        channel.viewers.add(viewer)
        return _StreamResponse(viewer, lambda: self._leave(viewer, channel))

    def wake(self, run_id: UUID) -> None:
        """Let the channels of a run and those of all runs read, because the run has committed."""
        for channel, _ in self._channels.values():
            if channel.run_id is None or channel.run_id == run_id:
                channel.changed.set()

    def close_streams(self) -> None:
        """End every stream without an ``end`` event, so that clients reconnect to another process."""
        self._closing = True
        for viewer in self._viewers:
            viewer.close()

    async def close(self) -> None:
        """End every stream and stop the tasks."""
        self.close_streams()
        tasks = [task for _, task in self._channels.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, key: Hashable, channel: Channel[Any]) -> None:
        try:
            await channel.serve()
        except SpeciateError as error:
            _log.warning("stream %s ended: %s", key, error)
        except Exception:  # noqa: BLE001 - clients reconnect, whatever the reason
            _log.exception("stream %s failed", key)
        else:
            return
        finally:
            self._forget(channel)
        for viewer in channel.viewers:
            viewer.close()

    def _leave(self, viewer: Viewer[P], channel: Channel[P]) -> None:
        self._viewers.discard(viewer)
        channel.viewers.discard(viewer)
        if not channel.viewers and (task := self._forget(channel)):
            task.cancel()

    def _forget(self, channel: Channel[Any]) -> asyncio.Task[None] | None:
        """Remove a channel and return its task, unless a later channel has its key."""
        for key, (current, task) in self._channels.items():
            if current is channel:
                del self._channels[key]
                return task
        return None


class _StreamResponse(StreamingResponse):
    """A response that removes its viewer when the connection ends."""

    def __init__(self, viewer: Viewer[Any], leave: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(viewer.chunks(), headers=headers, media_type=EVENT_STREAM)
        self._leave = leave

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._leave()


async def wait(event: asyncio.Event, limit_s: float) -> bool:
    """Wait until an event is set, and clear it; return False if the time is over first."""
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return False
    finally:
        event.clear()
    return True
