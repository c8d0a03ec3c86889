"""Time-ordered ids (UUIDv7)."""

import os
import secrets
import threading
import time
from typing import Final
from uuid import UUID

_MOST_BACK_MS: Final = 600_000
_STEP_BITS: Final = 48  # forked processes start from the same id: their steps must not meet

_id_lock = threading.Lock()
_last_id = 0


def _renew_lock() -> None:
    global _id_lock  # noqa: PLW0603
    _id_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)  # another thread of the parent may hold the lock


def uuid7() -> UUID:
    """Return a new UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds, 74 random bits.

    The ids of a process ascend, also within a millisecond and when its clock is set back by minutes: they then continue
    from the last one in random steps (section 6.2, method 2), so that lists stay in the order of creation. After a
    larger step back, such as the correction of a clock that was wrong at boot, they follow the clock.
    """
    global _last_id  # noqa: PLW0603
    bits = (time.time_ns() // 1_000_000) << 74 | secrets.randbits(74)
    with _id_lock:
        if bits <= _last_id < bits + (_MOST_BACK_MS << 74):
            bits = _last_id + 1 + secrets.randbits(_STEP_BITS)
        _last_id = bits
    high = (bits >> 74 << 16) | 0x7000 | (bits >> 62 & 0x0FFF)
    return UUID(int=high << 64 | 0x8000 << 48 | bits & (1 << 62) - 1)


def floor7(at: float) -> UUID:
    """Return the smallest UUIDv7 of a time in seconds since the epoch."""
    return UUID(int=(int(at * 1000) << 80) | 0x7000 << 64 | 0x8000 << 48)
