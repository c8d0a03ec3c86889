"""The trusted end of the channel: parse frames from an untrusted process.

A frame is a length (4 bytes, big-endian) and that many bytes of UTF-8 JSON, which must be an object. Any other data
raises ``FrameError``, and the broker reads nothing more from that process. Earlier frames stay valid, so partial
results survive.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from evaluators.contained.wire import HEADER_BYTES

Message = dict[str, Any]
"""A JSON object without NaN or infinities, no deeper than ``MAX_DEPTH``."""

MAX_DEPTH = 200
ENVELOPE_BYTES = 64 << 10
"""Bytes of a frame reserved for fields other than the value: index, reason, detail."""


class FrameError(ValueError):
    """The bytes violate the protocol; the message describes the violation."""


def encode(message: Message) -> bytes:
    """Return the frame of a trusted message."""
    body = _ENCODER.encode(message).encode("ascii")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


class FrameReader:
    """Split a stream into messages.

    Attributes:
        max_bytes: Longest frame that the reader accepts.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        self._buffer += data

    def next(self) -> Message | None:
        """Return the next complete message, or None if it needs more bytes.

        Raises:
            FrameError: The frame is too long, malformed, too deep, or holds NaN or an infinity.
        """
        if len(self._buffer) < HEADER_BYTES:
            return None
        size = int.from_bytes(self._buffer[:HEADER_BYTES], "big")
        if size > self.max_bytes:
            raise FrameError(f"a frame of {size} bytes: at most {self.max_bytes} are allowed")
        if len(self._buffer) < HEADER_BYTES + size:
            return None
        body = bytes(self._buffer[HEADER_BYTES : HEADER_BYTES + size])
        del self._buffer[: HEADER_BYTES + size]
        return _parse(body)


def _parse(body: bytes) -> Message:
    try:
        text = body.decode("utf-8")
        message, end = _DECODER.raw_decode(text)
    except RecursionError:
        raise FrameError(f"the frame is nested deeper than {MAX_DEPTH} levels") from None
    except ValueError as error:  # also UnicodeDecodeError, and integers of more digits than Python converts
        raise FrameError(f"the frame is not JSON: {error}") from None
    if end != len(text):
        raise FrameError("the frame is not JSON: it has extra data")
    if not isinstance(message, dict):
        raise FrameError(f"the frame is a JSON {type(message).__name__}: expected an object")
    _check(message)
    return message


def _check(message: Message) -> None:
    """Reject values that the parser accepts: deep nesting, and numbers such as 1e999 that become infinite."""
    level: list[Any] = [message]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            kind = type(value)  # the parser makes no subclasses
            if kind is dict:
                below += value.values()
            elif kind is list:
                below += value
            elif kind is float and not math.isfinite(value):
                raise FrameError("the frame holds a number that is too large for a float")
        if not below:
            return
        level = below
    raise FrameError(f"the frame is nested deeper than {MAX_DEPTH} levels")


def _refuse_constant(name: str) -> NoReturn:
    raise FrameError(f"the frame holds {name}")


# One each: the functions of ``json`` build another for every message with such arguments.
_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
