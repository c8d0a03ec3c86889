"""Frames of JSON over a file descriptor, inside the sandbox. A frame is a length (4 bytes, big-endian) and JSON."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from typing import Any

from .untrusted import check_size

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
        self._sending = threading.RLock()
        self._frame = bytearray()  # read so far: a signal may end a call before it has its answer

    def read(self) -> dict[str, Any] | None:
        body = self.body()
        return None if body is None else _DECODER.raw_decode(body.decode("ascii"))[0]

    def read_with_descriptors(self, most: int) -> tuple[dict[str, Any] | None, list[int]]:
        with _Socket(fileno=os.dup(self.fd)) as stream:
            stream.settimeout(None)  # a script may have set another default
            space = socket.CMSG_SPACE(most * _FD_BYTES)
            header, attached, _, _ = stream.recvmsg(HEADER_BYTES, space, socket.MSG_WAITALL | socket.MSG_CMSG_CLOEXEC)
        self._frame += header
        packed = b"".join(data for _, _, data in attached)
        fds = [int.from_bytes(packed[at : at + _FD_BYTES], sys.byteorder) for at in range(0, len(packed), _FD_BYTES)]
        return self.read(), fds

    def write(self, message: dict[str, Any]) -> None:
        self.send(self.pack(message))

    def pack(self, message: dict[str, Any]) -> bytes:
        """Return the frame of a message; ``TooLongError``, or ``TypeError`` or ``ValueError`` if it is not JSON."""
        data = frame(message)
        if len(data) - HEADER_BYTES > self.max_bytes:
            raise TooLongError(f"{len(data) - HEADER_BYTES} bytes of JSON: at most {self.max_bytes} are allowed")
        return data

    def send(self, data: bytes) -> None:
        sent = 0
        with self._sending:  # a thread may report progress meanwhile
            while sent < len(data):
                sent += os.write(self.fd, memoryview(data)[sent:])

    def body(self, most: int = 1 << 32) -> bytes | None:
        """Return the next frame without its length, None at the end; ``FrameError`` if it is too long."""
        if not self._holds(HEADER_BYTES):
            return None
        size = int.from_bytes(self._frame[:HEADER_BYTES], "big")
        check_size(size, most)
        if not self._holds(HEADER_BYTES + size):
            return None
        frame, self._frame = self._frame, bytearray()
        del frame[:HEADER_BYTES]
        return bytes(frame)

    def _holds(self, size: int) -> bool:
        while (left := size - len(self._frame)) > 0:
            if not (part := os.read(self.fd, min(left, _CHUNK_BYTES))):
                return False
            self._frame += part
        return True
