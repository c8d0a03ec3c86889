"""Find values that JSON or PostgreSQL cannot store unchanged, before any work is done."""

import math
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from speciate.domain.errors import FieldError
from speciate.domain.values import UNSTORABLE

MAX_DEPTH: Final = 100
"""Deepest nesting of a value."""

MAX_VALUES: Final = 1_000_000
"""Most values in one JSON text. Each takes 100 bytes or more as a Python object, but only two or three as text."""

MAX_KEYS: Final = 20_000
"""Most keys of one object: every unknown key is a separate error, and reporting errors is slower than parsing."""

TOO_MANY_DIGITS: Final = "has a number with thousands of digits: expected at most 4300, or a text"

_MAX_FLAWS: Final = 20
_MAX_BITS: Final = 14_284
"""Size of 4300 decimal digits, the longest integer that Python converts to text."""


def values_within(text: str, most: int) -> bool:
    """Return True if a JSON text holds at most ``most`` values, without parsing it.

    Every value but the first of a list or object follows a comma, and each list or object has an opening bracket.
    """
    if sum(map(text.count, ",[{")) <= most:
        return True
    unescaped = text.replace("\\\\", "").replace('\\"', "")
    if unescaped.count('"') > 4 * most:  # two quotes per key or value
        return False
    outside = "".join(unescaped.split('"')[::2])
    return sum(map(outside.count, ",[{")) <= most


def storage_errors(value: Any) -> list[FieldError]:
    """Return the parts of a value that JSON or PostgreSQL cannot store, with paths and, in texts, lines; at most 20."""
    field_errors: list[FieldError] = []
    # An explicit stack: nesting must not exhaust the call stack. It holds one iterator per level, because a body may
    # contain millions of values.
    waiting: list[tuple[tuple[object, ...], Iterator[tuple[object, Any]]]] = [((), iter([(None, value)]))]
    while waiting and len(field_errors) < _MAX_FLAWS:
        path, items = waiting[-1]
        for key, item in items:
            if message := _storage_error(item, len(waiting) - 1):
                where = ".".join(str(part) for part in (*path, key)[1:])[:500]
                field_errors.append(FieldError(message, where=where, line=_line_in(item)))
                break
            if isinstance(item, dict | list | tuple):
                waiting.append(((*path, key), _inside(item)))
                break
        else:
            waiting.pop()
    return field_errors


def _inside(item: dict[Any, Any] | list[Any] | tuple[Any, ...]) -> Iterator[tuple[object, Any]]:
    if isinstance(item, dict):
        return chain((("(key)", key) for key in item), item.items())
    return iter(enumerate(item))


def _line_in(item: Any) -> int | None:
    match = UNSTORABLE.search(item) if isinstance(item, str) else None
    return item.count("\n", 0, match.start()) + 1 if match else None


def _storage_error(item: Any, depth: int) -> str | None:
    match item:
        case float() if not math.isfinite(item):
            return f"is {item}: expected a finite number"
        case int() if item.bit_length() > _MAX_BITS:
            return TOO_MANY_DIGITS
        case str() if "\x00" in item:
            return "holds a NUL character: expected plain text"
        case str() if not item.isascii() and UNSTORABLE.search(item):
            return "holds half of a surrogate pair: expected Unicode text"
        case dict() if len(item) > MAX_KEYS:
            return f"has {len(item)} keys: expected at most {MAX_KEYS}"
        case dict() | list() | tuple() if depth >= MAX_DEPTH:
            return f"is nested deeper than {MAX_DEPTH}"
        case _:
            return None
