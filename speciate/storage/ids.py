"""Ids that sort by the time they were made, so that new rows land at the end of an index."""

from __future__ import annotations

import os
import time
from uuid import UUID


def uuid7() -> UUID:
    """Return a new UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds, 74 random bits."""
    milliseconds = time.time_ns() // 1_000_000
    bits = int.from_bytes(os.urandom(10), "big")
    high = (milliseconds << 16) | 0x7000 | (bits >> 68 & 0x0FFF)
    return UUID(int=high << 64 | 0x8000 << 48 | bits & (1 << 62) - 1)


def floor7(at: float) -> UUID:
    """Return the least UUIDv7 that can have been made at a moment, in seconds since the epoch."""
    return UUID(int=(int(at * 1000) << 80) | 0x7000 << 64 | 0x8000 << 48)
