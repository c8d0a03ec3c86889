from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speciate.client import sse
from speciate.client.sse import EventParser, EventTooLongError, ServerSentEvent


def _read(*chunks: bytes) -> list[ServerSentEvent]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_fields_are_read() -> None:
    events = _read(b"\xef\xbb\xbfid: 3\nevent: kind\ndata: one\ndata:  two\n: a comment\nunknown: x\n\n")
    assert events == [ServerSentEvent("kind", "one\n two", "3")]


def test_the_id_stays_and_the_name_does_not() -> None:
    assert _read(b"id: 3\nevent: a\ndata: 1\n\ndata: 2\n\n")[1] == ServerSentEvent("message", "2", "3")


def test_an_event_without_data_or_without_its_end_is_none() -> None:
    assert _read(b"event: a\nid: 1\n\n", b"data: half") == []


def test_a_line_separator_in_the_data_ends_no_line() -> None:
    # httpx.Response.iter_lines would cut here.
    assert _read('data: "a\u2028b\x85c"\n\n'.encode())[0].data == '"a\u2028b\x85c"'


def test_the_wish_to_wait_is_kept_and_nonsense_is_not() -> None:
    parser = EventParser()
    list(parser.feed(b"retry: 1500\nretry: soon\nretry: -1\n\n"))
    assert parser.retry_ms == 1500


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_CHARACTERS", 100)
    with pytest.raises(EventTooLongError):
        _read(b"data: ", b"x" * 101)
    with pytest.raises(EventTooLongError):
        _read(*[b"data: " + b"x" * 30 + b"\n"] * 5)


@given(cuts=st.lists(st.integers(0, 60), max_size=8), end=st.sampled_from(["\r\n", "\n", "\r"]))
def test_pieces_do_not_matter(cuts: list[int], end: str) -> None:
    lines = ["id: 1", "event: é", "data: ü\u2028", "data", "", "data: 語", "", "data: z"]
    whole = end.join(lines).encode() + end.encode() * 2 + b"x"
    places = [0, *sorted(cuts), len(whole)]
    pieces = [whole[a:b] for a, b in pairwise(places)]
    expected = [ServerSentEvent("é", "ü\u2028\n", "1"), ServerSentEvent("message", "語", "1")]
    assert _read(*pieces) == [*expected, ServerSentEvent("message", "z", "1")]
