"""Sending calls and waiting for the answers."""

from __future__ import annotations

import time
from collections.abc import Iterator
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


class Transport:
    """Sends calls; usable from several threads."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self._http = httpx.Client(**connection.options())

    def close(self) -> None:
        """Close every connection."""
        self._http.close()

    def send(self, call: Call[T]) -> T:
        """Send a call and return its result.

        Raises:
            SpeciateError: The service refused, or does not answer.
        """
        return self.make(call)[0]

    def make(self, call: Call[T]) -> tuple[T, bool]:
        """Send a call and return its result, and whether that is new; raises as ``send`` does."""
        arguments = self.connection.arguments(call)
        tries = 0
        while True:
            tries += 1
            try:
                response = self._http.request(**arguments)
                return read_answer(call, response), response.status_code == httpx.codes.CREATED
            except httpx.RequestError as error:
                if not worth_repeating(call, error, tries):
                    raise self.connection.unreachable(error) from error
            time.sleep(RETRY_DELAY_S)

    def items(self, call: Call[Page[R]]) -> Iterator[R]:
        """Yield the items of a list, fetching page after page; raises as ``send`` does."""
        seen: set[str] = set()
        while True:
            page = self.send(call)
            yield from page.items
            if page.next_cursor is None:
                return
            if page.next_cursor in seen:
                raise UnavailableError("the service answers the same page of the list again and again.")
            seen.add(page.next_cursor)
            call = call.at(page.next_cursor)

    def lines(self, call: Call[T]) -> Iterator[T]:
        """Yield the values of a JSON Lines stream as they come; raises as ``send`` does."""
        splitter = LineSplitter(call)
        try:
            with self._http.stream(**self.connection.arguments(call)) as response:
                if not response.is_success:
                    response.read()
                refuse_errors(response)
                for chunk in response.iter_bytes():
                    yield from splitter.feed(chunk, response)
                yield from splitter.finish(response)
        except httpx.RequestError as error:
            raise self.connection.unreachable(error) from error

    def events(self, course: Course) -> Iterator[EventRecord]:
        """Yield the events of a run until its end, over as many connections as it takes.

        Raises:
            SpeciateError: The service refused, or its connections break again and again.
        """
        while True:
            broken: httpx.RequestError | StreamBrokenError | None = None
            try:
                with self._http.stream("GET", course.path, headers=course.headers, timeout=STREAM_TIMEOUT) as response:
                    if not response.is_success:
                        response.read()
                    course.connected(response)
                    for chunk in response.iter_bytes():
                        yield from course.take(chunk)
                        if course.ended:
                            return
            except (httpx.RequestError, StreamBrokenError) as error:
                broken = error
            time.sleep(course.delay_after(broken))
