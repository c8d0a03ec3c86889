"""How long to wait before asking an endpoint again, and when asking again is no use."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import numpy as np

_WORTH_ANOTHER_TRY: Final = frozenset({408, 409, 429})


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter below a growing ceiling.

    Attributes:
        first_s: Ceiling of the first wait.
        longest_s: Ceiling of every wait, also of one that the server asks for.
    """

    first_s: float = 0.5
    longest_s: float = 30.0

    def wait_s(self, attempt: int, rng: np.random.Generator, asked_s: float | None = None) -> float:
        """Return the seconds to wait after failed attempt ``attempt``, counted from 0.

        Args:
            attempt: How many attempts came before the failed one.
            rng: Draws the jitter between half of the ceiling and all of it.
            asked_s: What the server asked for, or None.
        """
        if asked_s is not None:
            return min(asked_s, self.longest_s)
        ceiling = min(self.longest_s, self.first_s * 2.0**attempt)
        return ceiling * float(rng.uniform(0.5, 1.0))


def worth_another_try(status: int) -> bool:
    """Tell whether an HTTP status may pass by itself."""
    return status in _WORTH_ANOTHER_TRY or status >= 500


def asked_wait_s(header: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, given as a number or as a date; None if it is neither."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        aware = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (aware - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds) if math.isfinite(seconds) else None
