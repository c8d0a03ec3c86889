import contextlib
import json
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluators.channel import FrameReader
from evaluators.contained.untrusted import MAX_DEPTH, FrameError, parse
from evaluators.contained.wire import Wire
from evaluators.contained.wire import frame as encode

LIMIT = 1 << 16


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def read(data: bytes, max_bytes: int = LIMIT) -> object:
    reader = FrameReader(max_bytes)
    reader.feed(data)
    return reader.next()


def test_messages_survive_any_cut_of_the_stream():
    messages = [{"index": i, "value": "é" * i} for i in range(5)]
    stream = b"".join(encode(message) for message in messages)
    for step in (1, 3, 7, len(stream)):
        reader, got = FrameReader(LIMIT), []
        for start in range(0, len(stream), step):
            reader.feed(stream[start : start + step])
            while (message := reader.next()) is not None:
                got.append(message)
        assert got == messages


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"value": NaN}', "NaN"),
        (b'{"value": Infinity}', "Infinity"),
        (b'{"value": -Infinity}', "Infinity"),
        (b'{"value": [1e999]}', "too large"),
        (b'{"value": -1e999}', "too large"),
        (b"[1]", "expected an object"),
        (b'"text"', "expected an object"),
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b'{"a": 1} {"b": 2}', "not JSON"),
        (b"\xff\xfe", "not JSON"),
        ('{"a": 1}'.encode("utf-16"), "not JSON"),
        (b'{"value": ' + b"9" * 5000 + b"}", "not JSON"),
        (b'{"value": ' + b"[" * MAX_DEPTH + b"]" * MAX_DEPTH + b"}", "deeper"),
        (b'{"value": ' + b"[" * 20000 + b"]" * 20000 + b"}", "deeper"),
        (b'{"a":' * 20000 + b"1" + b"}" * 20000, "deeper"),
    ],
)
def test_refuses(body: bytes, words: str):
    with pytest.raises(FrameError, match=words):
        read(frame(body), 1 << 20)


def test_refuses_an_over_long_frame_on_its_header_alone():
    with pytest.raises(FrameError, match="at most"):
        read((LIMIT + 1).to_bytes(4, "big"))


def test_accepts_what_is_just_deep_enough():
    depth = MAX_DEPTH - 2
    assert read(frame(b'{"value": ' + b"[" * depth + b"]" * depth + b"}")) is not None


def test_frames_before_a_broken_one_stay_valid():
    reader = FrameReader(LIMIT)
    reader.feed(encode({"index": 0}) + frame(b"nonsense"))
    assert reader.next() == {"index": 0}
    with pytest.raises(FrameError):
        reader.next()


@given(st.lists(st.binary(max_size=40), max_size=20))
def test_random_bytes_raise_nothing_but_frame_errors(chunks: list[bytes]):
    reader = FrameReader(64)
    try:
        for chunk in chunks:
            reader.feed(chunk)
            while (message := reader.next()) is not None:
                assert isinstance(message, dict)
    except FrameError:
        return


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=5), children, max_size=4),
    max_leaves=20,
)


@given(json_values, st.integers(min_value=0, max_value=30), st.binary(max_size=4))
def test_hostile_frames_are_read_whole_or_refused(value: object, cut: int, noise: bytes):
    body = json.dumps({"value": value}).encode()
    reader = FrameReader(LIMIT)
    reader.feed(frame(body[: max(1, len(body) - cut)] + noise))
    try:
        message = reader.next()
    except FrameError:
        return
    assert isinstance(message, dict)
    assert reader.next() is None
    json.dumps(message, allow_nan=False)


@pytest.mark.parametrize(
    ("body", "deep"),
    [
        (b'{"a":' + b"[" * 150 + b"]" * 150 + b"}", False),
        (b'{"a":' + b"[" * 201 + b"]" * 201 + b"}", True),
        (b'{"a":' + b'{"b":' * 300 + b"1" + b"}" * 301, True),
        (b'{"a":"' + b"[" * 5000 + b'\\"' + b"[" * 5000 + b'"}', False),
        (b'{"a":[' + b",".join([b"[1]"] * 5000) + b"]}", False),
        (b"[" * 1_000_000, True),
        (b"[]" * 1_000_000 + b"[" * 1_000, True),
    ],
)
def test_depth_is_checked_before_the_parser_recurses(body: bytes, deep: bool) -> None:
    expected = pytest.raises(FrameError, match="deeper than 200") if deep else contextlib.nullcontext()
    with expected:
        parse(body)


@pytest.mark.parametrize("end", [b"", b"\\", b'\\"'])
def test_a_string_without_an_end_is_read_once(end: bytes) -> None:
    body = b'{"a":"' + b"[" * 300 + b'\\"' * 500_000 + end  # read again from every quote, this takes hours
    with pytest.raises(FrameError, match="not JSON"):
        parse(body)


def test_frames_of_threads_do_not_mix():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        wire, reader = Wire(ours.fileno(), 1 << 24), Wire(theirs.fileno(), 1 << 24)
        threads = [threading.Thread(target=wire.write, args=({"text": each * (1 << 22)},)) for each in "abcd"]
        for thread in threads:
            thread.start()
        texts = [(reader.read() or {})["text"] for _ in threads]
        for thread in threads:
            thread.join()
    assert sorted(text[0] for text in texts) == list("abcd")
    assert all(text == text[0] * (1 << 22) for text in texts)
