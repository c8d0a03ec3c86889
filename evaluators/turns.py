"""The turns of script and candidate, as the script states them while it calls over a direct line."""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import dataclass

from evaluators.contained.direct_line import TURN_BYTES


@dataclass(frozen=True, slots=True)
class Turn:
    """State of the calls.

    Attributes:
        calling: True while the script waits for the candidate.
        candidate_s: Seconds so far in which it did.
    """

    calling: bool
    candidate_s: float


class Turns:
    """The broker's end of the file that ``contained.direct_line`` describes.

    Attributes:
        fd: Descriptor for the script, which can write to the file but not change its size, nor the broker's descriptor.
    """

    def __init__(self) -> None:
        self._own = os.memfd_create("turns", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._own, TURN_BYTES)
        fcntl.fcntl(self._own, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self.fd = os.open(f"/proc/self/fd/{self._own}", os.O_RDWR | os.O_CLOEXEC)
        self._began_ns = time.monotonic_ns()

    def begin(self) -> int:
        """Start again with the script's turn; return the time from which turns count."""
        os.pwrite(self._own, bytes(TURN_BYTES), 0)
        self._began_ns = time.monotonic_ns()
        return self._began_ns

    def now(self) -> Turn:
        """Return the state; the candidate never had more time than has passed."""
        stated = int.from_bytes(os.pread(self._own, TURN_BYTES, 0), "little", signed=True)
        passed = time.monotonic_ns() - self._began_ns
        theirs = passed + stated + 1 if stated < 0 else stated
        return Turn(stated < 0, min(max(theirs, 0), passed) / 1e9)

    def close(self) -> None:
        """Close the file."""
        os.close(self.fd)
        os.close(self._own)
