"""Sending calls and awaiting the answers; the same as ``speciate.client.transport``, for asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import httpx

from speciate.client.answers import read_answer, refuse_errors
from speciate.client.calls import Call, R
from speciate.client.connection import RETRY_DELAY_S, STREAM_TIMEOUT, Connection, worth_repeating
from speciate.client.course import Course, StreamBrokenError
from speciate.client.lines import LineSplitter
from speciate.domain.errors import UnavailableError
from speciate.ports.records.base import Page
from speciate.ports.records.runs import EventRecord

T = TypeVar("T")


class AsyncTransport:
    """Sends calls; usable from several tasks of one event loop."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._http = httpx.AsyncClient(**connection.options())

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    async def send(self, call: Call[T]) -> T:
        """Send a call and return its result.

        Raises:
            SpeciateError: The service refused, or does not answer.
        """
        return (await self.make(call))[0]

    async def make(self, call: Call[T]) -> tuple[T, bool]:
        """Send a call and return its result, and whether that is new; raises as ``send`` does."""
        arguments = self.connection.arguments(call)
        tries = 0
        while True:
            tries += 1
            try:
                response = await self._http.request(**arguments)
                return read_answer(call, response), response.status_code == httpx.codes.CREATED
            except httpx.RequestError as error:
                if not worth_repeating(call, error, tries):
                    raise self.connection.unreachable(error) from error
            await asyncio.sleep(RETRY_DELAY_S)

    async def items(self, call: Call[Page[R]]) -> AsyncIterator[R]:
        """Yield the items of a list, fetching page after page; raises as ``send`` does."""
        seen: set[str] = set()
        while True:
            page = await self.send(call)
            for item in page.items:
                yield item
            if page.next_cursor is None:
                return
            if page.next_cursor in seen:
                raise UnavailableError("the service answers the same page of the list again and again.")
            seen.add(page.next_cursor)
            call = call.at(page.next_cursor)

    async def lines(self, call: Call[T]) -> AsyncIterator[T]:
        """Yield the values of a JSON Lines stream as they come; raises as ``send`` does."""
        splitter = LineSplitter(call)
        try:
            async with self._http.stream(**self.connection.arguments(call)) as response:
                if not response.is_success:
                    await response.aread()
                refuse_errors(response)
                async for chunk in response.aiter_bytes():
                    for value in splitter.feed(chunk, response):
                        yield value
                for value in splitter.finish(response):
                    yield value
        except httpx.RequestError as error:
            raise self.connection.unreachable(error) from error

    async def events(self, course: Course) -> AsyncIterator[EventRecord]:
        """Yield the events of a run until its end, over as many connections as it takes.

        Raises:
            SpeciateError: The service refused, or its connections break again and again.
        """
        while True:
            broken: httpx.RequestError | StreamBrokenError | None = None
            try:
                async with self._http.stream(
                    "GET", course.path, headers=course.headers, timeout=STREAM_TIMEOUT
                ) as response:
                    if not response.is_success:
                        await response.aread()
                    course.connected(response)
                    async for chunk in response.aiter_bytes():
                        for event in course.take(chunk):
                            yield event
                        if course.ended:
                            return
            except (httpx.RequestError, StreamBrokenError) as error:
                broken = error
            await asyncio.sleep(course.delay_after(broken))
