"""Numbers as short texts, the same on the command line, in prompts and in messages."""

from __future__ import annotations

from typing import Final

_MOST_WHOLE: Final = 1e15


def short_number(value: float, digits: int = 6) -> str:
    """Return a number as a short text: whole ones in full, others with some significant digits."""
    whole = abs(value) < _MOST_WHOLE and value == int(value)
    return str(int(value)) if whole else f"{value:.{digits}g}"
