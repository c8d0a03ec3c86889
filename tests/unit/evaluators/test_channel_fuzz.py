"""Whatever bytes a process sends: no crash but the two that are expected, and never an answer to what was not asked."""

import json
import math
import os
import socket

from hypothesis import given, settings
from hypothesis import strategies as st

from evaluators.candidate_process import LOADING, CandidateProcess
from evaluators.channel import FrameReader
from evaluators.contained.untrusted import FrameError
from evaluators.contained.wire import frame as encode
from evaluators.session import SessionEndedError
from evaluators.tiers.sandbox import ResourceUsage
from evaluators.tiers.scheduling import SchedulingDelay
from speciate.domain.problem import Problem

LIMIT = 4096


def framed(body):
    return len(body).to_bytes(4, "big") + body


def nested(floats):
    return st.recursive(
        st.none() | st.booleans() | st.integers() | floats | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    )


values = nested(st.floats())
finite = nested(st.floats(allow_nan=False, allow_infinity=False))
indices = st.sampled_from([0, 1, 2, 3, LOADING, 99, True, "0", 0.0, None, [], 1 << 70])
answers = st.fixed_dictionaries(
    {"index": indices},
    optional={
        "value": values,
        "error": st.sampled_from(["raised", "too_long", "nothing", 3]),
        "detail": st.text(max_size=5) | st.integers(),
        "rewards": values,
    },
)
frames = st.one_of(
    answers.map(lambda message: framed(json.dumps(message).encode())),
    values.map(lambda message: framed(json.dumps(message).encode())),
    st.binary(max_size=64).map(framed),
    st.binary(max_size=64),
    st.builds(lambda size, body: size.to_bytes(4, "big") + body, st.integers(0, 2**32 - 1), st.binary(max_size=32)),
    st.integers(1, 3000).map(lambda depth: framed(b"[" * depth + b"]" * depth)),
)
streams = st.lists(frames, max_size=12).map(b"".join)


@st.composite
def cut(draw):
    """A stream in pieces, perhaps without its end."""
    stream = draw(streams)
    stream = stream[: draw(st.integers(0, len(stream)))] if draw(st.booleans()) else stream
    places = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    return [stream[a:b] for a, b in zip([0, *places], [*places, len(stream)], strict=True)]


@given(cut())
def test_a_reader_gives_objects_or_refuses_for_good(pieces):
    reader = FrameReader(LIMIT)
    got = []
    try:
        for piece in pieces:
            reader.feed(piece)
            while (message := reader.next()) is not None:
                got.append(message)
    except FrameError:
        pass
    assert all(isinstance(message, dict) for message in got)
    json.dumps(got, allow_nan=False)


@given(st.lists(st.dictionaries(st.text(max_size=5), finite, max_size=3), max_size=3), st.integers(1, 7))
@settings(max_examples=50)
def test_what_we_write_is_read_as_it_was(messages, step):
    reader = FrameReader(1 << 20)
    stream = b"".join(map(encode, messages))
    got = []
    for at in range(0, len(stream), step):
        reader.feed(stream[at : at + step])
        while (message := reader.next()) is not None:
            got.append(message)
    assert got == messages


class Puppet:
    """A contained process that has already said everything."""

    def __init__(self, stream):
        self.channel, there = socket.socketpair()
        self.channel.setblocking(False)
        there.sendall(stream)
        there.close()
        out, end = os.pipe()
        os.close(end)
        os.set_blocking(out, False)
        self.logs = {"stdout": out}
        self.waiting = SchedulingDelay(0)

    def wait_ready(self, timeout_s):
        return True

    def stop(self, *, grace_s=0.0):
        return ResourceUsage(0, ended=True)

    def close(self):
        self.channel.close()
        for fd in self.logs.values():
            os.close(fd)


PROBLEM = Problem.model_validate(
    {
        "slug": "p",
        "title": "p",
        "kind": "cases",
        "objectives": [{"name": "score"}],
        "targets": [{"name": "t", "rule": "score >= 1", "unlock": True}],
        "cases": [{"input": [], "expected": 0}],
        "limits": {"output_bytes": LIMIT},
    }
)


@given(streams)
def test_only_what_was_asked_is_answered_and_only_once(stream):
    callee = CandidateProcess(Puppet(stream), "", 0, PROBLEM)
    asked = {0, 1, 2, 3}
    for index in asked:
        callee.ask(index, "solve", [])
    got = []
    allowance = callee.session.allow(5.0, math.inf)
    try:
        while True:
            got.append(callee.answer(allowance))
    except SessionEndedError:
        pass
    finally:
        callee.end()
    given_for = [answer.index for answer in got]
    assert len(given_for) == len(set(given_for))
    assert set(given_for) <= asked | {LOADING}
    assert all(answer.failure is not None for answer in got if answer.index == LOADING)
