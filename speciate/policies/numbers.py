"""Read JSON and numbers that endpoints report. Any value may arrive: text, NaN, 10**400."""

import json
import math
from collections.abc import Iterable
from typing import Any, Final

_MOST: Final = 10**12
"""No endpoint reports more tokens, sequences or adapters."""
_MOST_TOKEN_ID: Final = 2**31 - 1
_LEAST_LOGPROB: Final = -1e6
_MOST_LOGPROB: Final = 1.0  # rounding may exceed 0 a little


def read_json(text: str | bytes) -> Any:
    """Return a value from its JSON, or None if it is malformed."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def read_number(value: object) -> float | None:
    """Return a JSON number, or a number in a text of metrics, as a finite float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def read_count(value: object, most: int = _MOST) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def read_tokens(value: object) -> int | None:
    """Return a reported number of tokens: a whole number, which some endpoints write as ``100.0`` or as text."""
    number = read_number(value)
    return read_count(int(number)) if number is not None and number.is_integer() else None


def sum_of_counts(texts: Iterable[str]) -> int | None:
    """Return the sum of numbers in a text of metrics, without those that are no counts; None if none is left."""
    numbers = [number for text in texts if (number := read_number(text)) is not None and 0 <= number <= _MOST]
    return int(sum(numbers)) if numbers else None


def read_logprobs(values: Iterable[object]) -> list[float]:
    numbers = [n for value in values if not isinstance(value, str) and (n := read_number(value)) is not None]
    return [number for number in numbers if _LEAST_LOGPROB <= number <= _MOST_LOGPROB]


def read_token_ids(values: object) -> tuple[int, ...]:
    if not isinstance(values, list):
        return ()
    ids = [read_count(value, _MOST_TOKEN_ID) for value in values]
    return tuple(each for each in ids if each is not None) if None not in ids else ()
