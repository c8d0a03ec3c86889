"""Numbers as short texts, the same on the command line, in prompts and in messages."""

from typing import Final

_MOST_WHOLE: Final = 1e15
_EXACT: Final = 17
"""Significant digits that suffice for every float; its ``repr`` has no more than it needs."""


def short_number(value: float, digits: int = 6) -> str:
    """Return a number as a short text: whole ones in full, others with digits, at most those of repr."""
    whole = abs(value) < _MOST_WHOLE and value == int(value)
    return str(int(value)) if whole else f"{value:.{digits}g}" if digits < _EXACT else repr(float(value))


def distinct_numbers(value: float, other: float) -> tuple[str, str]:
    """Return two numbers as the shortest texts of at least six digits that differ as the numbers do."""
    for digits in range(6, 18):
        texts = short_number(value, digits), short_number(other, digits)
        if texts[0] != texts[1]:
            break
    return texts
