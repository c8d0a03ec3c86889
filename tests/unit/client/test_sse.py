"""Server-sent events as the transports read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import pairwise

import httpx
from httpx_sse import EventSource, ServerSentEvent
from hypothesis import given
from hypothesis import strategies as st

HEADERS = {"Content-Type": "text/event-stream"}


class _Chunks(httpx.SyncByteStream, httpx.AsyncByteStream):
    def __init__(self, chunks: tuple[bytes, ...]) -> None:
        self._chunks = chunks

    def __iter__(self) -> Iterator[bytes]:
        yield from self._chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


def _events(*chunks: bytes) -> list[ServerSentEvent]:
    """Read the events with both clients and return those that carry data."""
    response = httpx.Response(200, headers=HEADERS, stream=_Chunks(chunks))
    found = [event for event in EventSource(response).iter_sse() if event.data]
    again = asyncio.run(_async_events(chunks))
    assert [_fields(event) for event in found] == [_fields(event) for event in again]
    return found


async def _async_events(chunks: tuple[bytes, ...]) -> list[ServerSentEvent]:
    response = httpx.Response(200, headers=HEADERS, stream=_Chunks(chunks))
    return [event async for event in EventSource(response).aiter_sse() if event.data]


def _fields(event: ServerSentEvent) -> tuple[str, str, str]:
    return event.event, event.data, event.id


def test_fields_are_read() -> None:
    events = _events(b"id: 3\nevent: kind\ndata: one\ndata:  two\n: a comment\nunknown: x\n\n")
    assert [_fields(event) for event in events] == [("kind", "one\n two", "3")]


def test_the_id_stays_and_the_name_does_not() -> None:
    assert _fields(_events(b"id: 3\nevent: a\ndata: 1\n\ndata: 2\n\n")[1]) == ("message", "2", "3")


def test_an_incomplete_event_is_dropped() -> None:
    assert _events(b"event: a\nid: 1\n\n", b"data: half") == []


def test_a_line_separator_in_the_data_ends_no_line() -> None:
    # httpx.Response.iter_lines would cut here.
    assert _events('data: "a\u2028b\x85c"\n\n'.encode())[0].data == '"a\u2028b\x85c"'


@given(cuts=st.lists(st.integers(0, 60), max_size=8), end=st.sampled_from(["\r\n", "\n", "\r"]))
def test_chunk_boundaries_do_not_matter(cuts: list[int], end: str) -> None:
    lines = ["id: 1", "event: é", "data: ü\u2028", "data", "", "data: 語", "", "data: z"]
    whole = end.join(lines).encode() + end.encode() * 2 + b"x"
    places = [0, *sorted(cuts), len(whole)]
    pieces = [whole[a:b] for a, b in pairwise(places)]
    expected = [("é", "ü\u2028\n", "1"), ("message", "語", "1"), ("message", "z", "1")]
    assert [_fields(event) for event in _events(*pieces)] == expected
