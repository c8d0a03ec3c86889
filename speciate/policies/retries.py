"""Decide whether and when to repeat a failed request."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import numpy as np

from speciate.policies.numbers import read_number

_TRANSIENT: Final = frozenset({408, 409, 429})


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter."""

    first_s: float = 0.5
    longest_s: float = 30.0
    """Ceiling of every wait, even if the server requests more."""

    def wait_s(self, attempt: int, rng: np.random.Generator, requested_s: float | None = None) -> float:
        if requested_s is not None:
            return min(requested_s, self.longest_s)
        ceiling = min(self.longest_s, self.first_s * 2.0**attempt)
        return ceiling * float(rng.uniform(0.5, 1.0))


def is_transient(status: int) -> bool:
    return status in _TRANSIENT or status >= 500


def retry_after_s(header: str | None) -> float | None:
    """Return the seconds of a ``Retry-After`` header, given as a number or a date; None if it is neither."""
    if header is None:
        return None
    if (seconds := read_number(header)) is None:
        try:
            date = parsedate_to_datetime(header)
        except ValueError:
            return None
        aware = date if date.tzinfo else date.replace(tzinfo=UTC)
        seconds = (aware - datetime.now(UTC)).total_seconds()
    return max(0.0, seconds)
