"""The trusted end of the channel: parse frames from an untrusted process.

A frame is a length (4 bytes, big-endian) and that many bytes of UTF-8 JSON, which must be an object. Any other data
raises ``FrameError``, and the worker reads nothing more from that process. Earlier frames stay valid, so partial
results survive.
"""

from typing import Any

from evaluators.contained.untrusted import check_size, parse
from evaluators.contained.wire import HEADER_BYTES

Message = dict[str, Any]
"""A JSON object without NaN or infinities, no deeper than ``contained.untrusted.MAX_DEPTH``."""

ENVELOPE_BYTES = 64 << 10
"""Bytes of a frame reserved for fields other than the value: index, reason, detail."""


class FrameReader:
    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self._buffer = bytearray()

    def feed(self, data: bytes) -> None:
        self._buffer += data

    def next(self) -> Message | None:
        """Return the next complete message, or None if it needs more bytes; raises ``FrameError``."""
        if len(self._buffer) < HEADER_BYTES:
            return None
        size = int.from_bytes(self._buffer[:HEADER_BYTES], "big")
        check_size(size, self.max_bytes)
        if len(self._buffer) < HEADER_BYTES + size:
            return None
        body = bytes(self._buffer[HEADER_BYTES : HEADER_BYTES + size])
        del self._buffer[: HEADER_BYTES + size]
        return parse(body)
