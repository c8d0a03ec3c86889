"""The port to time."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Tells the time; a test hands in one that it turns by hand."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        ...
