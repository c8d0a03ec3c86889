"""Frames of JSON over a file descriptor, inside the sandbox. A frame is a length (4 bytes, big-endian) and JSON."""

from __future__ import annotations

import json
import os
import socket
import sys
from typing import Any

HEADER_BYTES = 4
PROGRESS_CHARS = 200
"""Characters of a text of progress."""
MAX_NOTES, LABEL_CHARS = 32, 80
"""Notes of an evaluation, and characters of a note's label."""
_CHUNK_BYTES = 1 << 20
_FD_BYTES = 4
_Socket = socket.socket  # a script may replace it


class TooLongError(ValueError):
    """The message is longer than a frame may be."""


def _plain(value: Any) -> Any:
    # Convert numpy arrays and scalars to plain data without importing numpy.
    if callable(tolist := getattr(value, "tolist", None)):
        return tolist()
    raise TypeError(f"a value of type {type(value).__name__} is not JSON")


def encode(value: Any) -> str:
    return _ENCODER.encode(value)


# One each: the functions of ``json`` do more for every message.
_ENCODER = json.JSONEncoder(allow_nan=False, default=_plain, separators=(",", ":"))
_DECODER = json.JSONDecoder()


def frame(message: dict[str, Any]) -> bytes:
    body = encode(message).encode("ascii")
    return len(body).to_bytes(HEADER_BYTES, "big") + body


class Wire:
    """A blocking, two-way stream of frames."""

    def __init__(self, fd: int, max_bytes: int) -> None:
        self.fd = fd
        self.max_bytes = max_bytes

    def read(self) -> dict[str, Any] | None:
        return self._rest(self.exactly(HEADER_BYTES))

    def read_with_descriptors(self, most: int) -> tuple[dict[str, Any] | None, list[int]]:
        with _Socket(fileno=os.dup(self.fd)) as stream:
            stream.settimeout(None)  # a script may have set another default
            space = socket.CMSG_SPACE(most * _FD_BYTES)
            header, attached, _, _ = stream.recvmsg(HEADER_BYTES, space, socket.MSG_WAITALL | socket.MSG_CMSG_CLOEXEC)
        packed = b"".join(data for _, _, data in attached)
        fds = [int.from_bytes(packed[at : at + _FD_BYTES], sys.byteorder) for at in range(0, len(packed), _FD_BYTES)]
        return self._rest(header if len(header) == HEADER_BYTES else None), fds

    def write(self, message: dict[str, Any]) -> None:
        self.send(self.pack(message))

    def pack(self, message: dict[str, Any]) -> bytes:
        """Return the frame of a message; ``TooLongError``, or ``TypeError`` or ``ValueError`` if it is not JSON."""
        data = frame(message)
        if len(data) - HEADER_BYTES > self.max_bytes:
            raise TooLongError(f"{len(data) - HEADER_BYTES} bytes of JSON: at most {self.max_bytes} are allowed")
        return data

    def send(self, data: bytes) -> None:
        sent = os.write(self.fd, data)
        while sent < len(data):
            sent += os.write(self.fd, memoryview(data)[sent:])

    def exactly(self, size: int) -> bytes | None:
        part = os.read(self.fd, min(size, _CHUNK_BYTES))
        if len(part) == size:
            return part
        parts = bytearray()
        while part:
            parts += part
            if len(parts) == size:
                return bytes(parts)
            part = os.read(self.fd, min(size - len(parts), _CHUNK_BYTES))
        return None

    def _rest(self, header: bytes | None) -> dict[str, Any] | None:
        body = None if header is None else self.exactly(int.from_bytes(header, "big"))
        return None if body is None else _DECODER.raw_decode(body.decode("ascii"))[0]
