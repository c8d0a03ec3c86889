"""Clock of a candidate that a script writes and the worker reads while the script calls over a direct channel."""

import fcntl
import os
import time
from typing import NamedTuple

from evaluators.contained.direct_channel import CLOCK_BYTES


class ClockReading(NamedTuple):
    """True while the script waits for the candidate, and the seconds so far in which it did."""

    calling: bool
    candidate_s: float


class SharedClock:
    """The worker's end of the file that ``contained.direct_channel`` describes.

    With ``fd`` the script can write to the file, but change neither its size nor the worker's descriptor.
    """

    def __init__(self) -> None:
        self._own = os.memfd_create("clock", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self._own, CLOCK_BYTES)
        fcntl.fcntl(self._own, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL)
        self.fd = os.open(f"/proc/self/fd/{self._own}", os.O_RDWR | os.O_CLOEXEC)
        self._began_ns = time.monotonic_ns()

    def start(self) -> int:
        """Reset the clock; return the time from which it counts, in nanoseconds of the monotonic clock."""
        os.pwrite(self._own, bytes(CLOCK_BYTES), 0)
        self._began_ns = time.monotonic_ns()
        return self._began_ns

    def read(self) -> ClockReading:
        """Return the state; whatever the script wrote, the candidate never had more time than has passed."""
        written_ns = int.from_bytes(os.pread(self._own, CLOCK_BYTES, 0), "little", signed=True)
        passed_ns = time.monotonic_ns() - self._began_ns
        candidate_ns = passed_ns + written_ns + 1 if written_ns < 0 else written_ns
        return ClockReading(written_ns < 0, min(max(candidate_ns, 0), passed_ns) / 1e9)

    def close(self) -> None:
        os.close(self.fd)
        os.close(self._own)
