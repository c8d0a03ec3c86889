"""Compare an answer with the expected value as JSON, without calling a candidate's ``__eq__``."""

import math
import re

from pydantic import JsonValue

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def equal(expected: JsonValue, got: JsonValue, tolerance: float = 0.0) -> bool:
    """Return True if two JSON values are equal.

    Types must match: ``True`` is not ``1`` and ``"1"`` is not ``1``. Without a tolerance ``1`` is not ``1.0`` either.
    With a tolerance, numbers are equal if they differ by at most that, absolutely or relative to the larger. NaN equals
    nothing. Lists compare by position, objects by key.
    """
    match expected, got:
        case bool(), _:
            return expected is got
        case (int() | float(), bool()):
            return False
        case (int() | float(), int() | float()):
            return _numbers_equal(expected, got, tolerance)
        case (list(), list()):
            return len(expected) == len(got) and all(equal(e, g, tolerance) for e, g in zip(expected, got, strict=True))
        case (dict(), dict()):
            return expected.keys() == got.keys() and all(equal(expected[key], got[key], tolerance) for key in expected)
        case _:
            return type(expected) is type(got) and expected == got


def words_of(text: JsonValue) -> JsonValue:
    """Return the words of a text, those that are numbers as numbers; any other value as it is."""
    if not isinstance(text, str):
        return text
    return [float(word) if _NUMBER.fullmatch(word) else word for word in text.split()]


def _numbers_equal(expected: float, got: float, tolerance: float) -> bool:
    if tolerance == 0:
        return type(expected) is type(got) and expected == got
    try:
        return math.isclose(expected, got, rel_tol=tolerance, abs_tol=tolerance)
    except OverflowError:  # an integer too large for a float
        return expected == got
