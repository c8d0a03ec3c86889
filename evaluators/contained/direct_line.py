"""The script's end of a direct line to the candidate: calls that need not pass through the broker.

The broker lends the script its end of the candidate's channel, and a file of 8 bytes in which the script states whose
turn it is, so that the broker can keep both time limits while it sleeps. The number in the file is the time in
nanoseconds in which the candidate had its turn, or, during a call, the time in which it did not, as ``-1 - time``. All
times count from the one that the broker states, on the monotonic clock.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from typing import Any, Final

from .candidate import LOADING
from .program import DETAIL_CHARS
from .untrusted import FrameError, check_size, parse
from .wire import HEADER_BYTES, Wire

TURN_BYTES: Final = 8
MAX_STRAY_FRAMES: Final = 1000
_NONCE_BYTES: Final = 6
_REASON_CHARS: Final = 80


class DirectLine:
    """Call the candidate.

    Args:
        fds: Stream to the candidate, and file of the turns.
        began_ns: Time of the monotonic clock from which turns count.
        frame_bytes: Longest frame to accept.
        max_bytes: Longest frame to send.
    """

    def __init__(self, fds: tuple[int, int], began_ns: int, frame_bytes: int, max_bytes: int) -> None:
        fd, self._turn_fd = fds
        self._wire, self._began_ns = Wire(fd, max_bytes), began_ns
        self._frame_bytes = frame_bytes
        self._theirs_ns = 0  # duration of all calls
        self._strays = 0

    def call(self, name: str, args: tuple[Any, ...]) -> dict[str, Any]:
        """Return the candidate's answer ``{"value": v}``, or what the broker has to know instead.

        That is ``{"refused": {"index": i, "error": reason, "detail": text}}``, or
        ``{"lost": "gone" | "broken", "detail": text}`` if there can be no further answer.

        Raises:
            TypeError: As ``Wire.pack``.
            ValueError: As ``Wire.pack``.
        """
        # Random, so that nothing sent before the question can be its answer.
        nonce = int.from_bytes(os.urandom(_NONCE_BYTES), "little")
        question = self._wire.pack({"index": nonce, "call": name, "args": args})
        began_ns = time.monotonic_ns()
        self._note(self._began_ns + self._theirs_ns - began_ns - 1)
        try:
            with suppress(OSError):  # it has ended, but what it said before can still be read
                self._wire.send(question)
            return self._answer(nonce)
        except FrameError as error:
            return {"lost": "broken", "detail": str(error)}
        except OSError:
            return {"lost": "gone", "detail": ""}
        finally:
            self._theirs_ns += time.monotonic_ns() - began_ns
            self._note(self._theirs_ns)

    def close(self) -> None:
        """Close it; the candidate's channel stays with the broker."""
        os.close(self._wire.fd)
        os.close(self._turn_fd)

    def _answer(self, nonce: int) -> dict[str, Any]:
        while True:
            header = self._wire.exactly(HEADER_BYTES)
            size = int.from_bytes(header or b"", "big")
            check_size(size, self._frame_bytes)
            body = None if header is None else self._wire.exactly(size)
            if body is None:
                return {"lost": "gone", "detail": ""}
            message = parse(body)
            index = message.get("index")
            if type(index) is int and index in (nonce, LOADING):
                if index == nonce and "value" in message:
                    return message
                return _refusal(message)
            self._strays += 1
            if self._strays > MAX_STRAY_FRAMES:
                return {"lost": "broken", "detail": "too many frames that match no open call"}

    def _note(self, turn: int) -> None:
        os.pwrite(self._turn_fd, turn.to_bytes(TURN_BYTES, "little", signed=True), 0)


def _refusal(message: dict[str, Any]) -> dict[str, Any]:
    reason, detail = message.get("error"), message.get("detail")
    if not isinstance(reason, str) or not isinstance(detail, str):
        return {"lost": "broken", "detail": "a frame is neither a value nor an error"}
    short = {"index": message["index"], "error": reason[:_REASON_CHARS], "detail": detail[-DETAIL_CHARS:]}
    return {"refused": short}
