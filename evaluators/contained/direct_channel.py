"""Calls of a script to the candidate that do not pass through the worker.

The worker gives the script the candidate's channel and a shared clock: a file of 8 bytes from which the worker knows
which of the two computes, so that it can keep both time limits while it sleeps. The number in the file is the time in
nanoseconds in which the candidate computed so far or, during a call, the time in which it did not, as ``-1 - time``.
All times count from the one that the worker names, on the monotonic clock.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Final

from .candidate import LOADING
from .program import DETAIL_CHARS
from .untrusted import FrameError, parse
from .wire import Wire

CLOCK_BYTES: Final = 8
MAX_STRAY_FRAMES: Final = 1000
_NONCE_BYTES: Final = 6
_REASON_CHARS: Final = 80


class DirectChannel:
    """The script's end of the candidate's channel.

    ``fds`` are the stream to the candidate and the file of the shared clock, which counts from ``began_ns``. It accepts
    frames of ``frame_bytes`` and sends ``max_bytes``.
    """

    def __init__(self, fds: tuple[int, int], began_ns: int, frame_bytes: int, max_bytes: int) -> None:
        fd, self._clock_fd = fds
        self._wire, self._began_ns = Wire(fd, max_bytes), began_ns
        self._frame_bytes = frame_bytes
        self._candidate_ns = 0  # duration of all calls
        self._strays = 0

    def call(self, name: str, args: tuple[Any, ...]) -> dict[str, Any]:
        """Return ``{"value": v}``, ``{"refused": {"index": i, "error": reason, "detail": text}}``, or
        ``{"lost": "gone" | "broken", "detail": text}`` if there can be no further answer; raises as ``Wire.pack``.
        """
        # Random, so that nothing sent before the question can be its answer.
        nonce = int.from_bytes(os.urandom(_NONCE_BYTES), "little")
        question = self._wire.pack({"index": nonce, "call": name, "args": args})
        began_ns = time.monotonic_ns()
        self._set_clock(self._began_ns + self._candidate_ns - began_ns - 1)
        try:
            with suppress(OSError):  # it has ended, but what it said before can still be read
                self._wire.send(question)
            return self._answer(nonce)
        except FrameError as error:
            return {"lost": "broken", "detail": str(error)}
        except OSError:
            return {"lost": "gone", "detail": ""}
        finally:
            self._candidate_ns += time.monotonic_ns() - began_ns
            self._set_clock(self._candidate_ns)

    def close(self) -> None:
        os.close(self._wire.fd)
        os.close(self._clock_fd)

    def _answer(self, nonce: int) -> dict[str, Any]:
        while True:
            if (body := self._wire.body(self._frame_bytes)) is None:
                return {"lost": "gone", "detail": ""}
            message = parse(body)
            index = message.get("index")
            if type(index) is int and index in (nonce, LOADING):
                return message if index == nonce and "value" in message else _refusal(message)
            self._strays += 1
            if self._strays > MAX_STRAY_FRAMES:
                return {"lost": "broken", "detail": "too many frames that match no open call"}

    def _set_clock(self, value: int) -> None:
        os.pwrite(self._clock_fd, value.to_bytes(CLOCK_BYTES, "little", signed=True), 0)


def _refusal(message: dict[str, Any]) -> dict[str, Any]:
    reason, detail = message.get("error"), message.get("detail")
    if not isinstance(reason, str) or not isinstance(detail, str):
        return {"lost": "broken", "detail": "a frame is neither a value nor an error"}
    return {"refused": {"index": message["index"], "error": reason[:_REASON_CHARS], "detail": detail[-DETAIL_CHARS:]}}
