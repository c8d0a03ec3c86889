"""Send API calls over HTTP: retries, pages, JSON Lines and event streams."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Generic, TypeVar
from uuid import UUID

import httpx
from httpx_sse import EventSource

from speciate.client.calls import ApiCall, R
from speciate.client.connection import RETRY_DELAY_S, STREAM_TIMEOUT, Connection, should_retry
from speciate.client.event_cursor import HEARTBEAT, EventCursor, StreamBrokenError
from speciate.client.responses import raise_for_error, read_line, read_response
from speciate.domain.visibility import VisibilityChange
from speciate.schema.base import Page
from speciate.schema.runs import EventRecord

T = TypeVar("T")


class AsyncRestTransport:
    """Sends API calls. One instance serves concurrent callers."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        socket = connection.socket
        transport = None if socket is None else httpx.AsyncHTTPTransport(uds=socket)
        self._http = httpx.AsyncClient(**connection.options(), transport=transport)

    async def close(self) -> None:
        await self._http.aclose()

    async def send(self, call: ApiCall[T]) -> T:
        """Send a request and return its result; ``SpeciateError`` if the service is silent or responds with one."""
        result, _ = await self.create(call)
        return result

    async def create(self, call: ApiCall[T]) -> tuple[T, bool]:
        """Send a request and return its result, and True if it created a resource. Raises as ``send`` does."""
        arguments = self.connection.arguments(call)
        tries = 0
        while True:
            tries += 1
            try:
                response = await self._http.request(**arguments)
                return read_response(call, response), response.status_code == httpx.codes.CREATED
            except httpx.RequestError as error:
                if not should_retry(call, error, tries):
                    raise self.connection.unreachable(error) from error
            await asyncio.sleep(RETRY_DELAY_S)

    async def items(self, call: ApiCall[Page[R]]) -> AsyncIterator[R]:
        """Yield the items of a list, fetching page after page. Raises as ``send`` does."""
        while True:
            page = await self.send(call)
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            call = call.at(page.next_cursor)

    async def lines(self, call: ApiCall[T]) -> AsyncIterator[T]:
        """Yield the values of a JSON Lines response as they arrive. Raises as ``send`` does."""
        rest = b""
        try:
            async with self._http.stream(**self.connection.arguments(call)) as response:
                if not response.is_success:
                    await response.aread()
                raise_for_error(response)
                async for chunk in response.aiter_bytes():
                    *lines, rest = (rest + chunk).split(b"\n")  # line feeds only: texts may hold other separators
                    for line in filter(bytes.strip, lines):
                        yield read_line(call, line, response)
                if rest.strip():
                    yield read_line(call, rest, response)
        except httpx.RequestError as error:
            raise self.connection.unreachable(error) from error

    async def events(self, cursor: EventCursor) -> AsyncIterator[EventRecord | None]:
        """Yield events of a run until its end, None in silence, reconnecting until it is no use. Raises as ``send``."""
        while True:
            broken: httpx.RequestError | StreamBrokenError | None = None
            try:
                async with self._http.stream(
                    "GET", cursor.path, headers=cursor.headers, timeout=STREAM_TIMEOUT
                ) as response:
                    if not response.is_success:
                        await response.aread()
                    cursor.connected(response)
                    async for event in EventSource(response).aiter_sse():
                        record = cursor.accept(event)
                        if record is not None or event.event == HEARTBEAT:
                            yield record
                        if cursor.ended:
                            return
            except (httpx.RequestError, StreamBrokenError) as error:
                broken = error
            await asyncio.sleep(cursor.delay_after(broken))


class AsyncResourceClient:
    """Base of the client groups."""

    def __init__(self, transport: AsyncRestTransport) -> None:
        self._transport = transport


class AsyncHideableClient(AsyncResourceClient, ABC, Generic[T]):
    """Base of the client groups whose objects can be archived and deleted."""

    async def archive(self, name: str | UUID) -> T:
        """Archive by id or name: lists hide it and new work cannot use it; records still count it.

        A problem or policy name without version stands for all versions. Raises ``ConflictError`` for a run that has
        not ended, and if it is deleted.
        """
        return await self._change(name, VisibilityChange.ARCHIVE)

    async def delete(self, name: str | UUID) -> T:
        """Delete by id or name, as ``archive``: it counts nowhere, and can be restored until it is purged.

        Raises ``ConflictError`` for a run that has not ended, and if something refers to it.
        """
        return await self._change(name, VisibilityChange.DELETE)

    async def restore(self, name: str | UUID) -> T:
        """Restore by id or name, as ``archive``: undo the deletion, else the archiving.

        Raises ``ConflictError`` if the problem or a policy of the run is deleted.
        """
        return await self._change(name, VisibilityChange.RESTORE)

    @abstractmethod
    async def _change(self, name: str | UUID, change: VisibilityChange) -> T: ...
