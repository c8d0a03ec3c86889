"""Read from a response whether and when to repeat its request."""

from __future__ import annotations

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from speciate.policies.numbers import read_number

_TRANSIENT: Final = frozenset({408, 409, 429})


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
