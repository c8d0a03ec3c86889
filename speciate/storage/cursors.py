"""Opaque cursors: where the next page begins, in a form that clients do not take apart."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar
from uuid import UUID

from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.values import storable
from speciate.ports.records.base import Page

MAX_LIMIT = 500
"""Most items of one page."""

T = TypeVar("T")
Row = TypeVar("Row")


def encode(*key: Any) -> str:
    """Return the cursor of a row's sort key."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def decode(cursor: str, kinds: Sequence[type]) -> list[Any]:
    """Return the sort key of a cursor.

    Args:
        cursor: What ``encode`` returned.
        kinds: Expected type of each part.

    Raises:
        InvalidInputError: It is no cursor of this list.
    """
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        key = None
    if not isinstance(key, list) or len(key) != len(kinds):
        raise refusal()
    return [_part(part, kind) for part, kind in zip(key, kinds, strict=True)]


def decode_id(cursor: str) -> UUID:
    """Return the id in the cursor of a list that is sorted by id; raises as ``decode`` does."""
    found: UUID = decode(cursor, [UUID])[0]
    return found


def page(rows: Sequence[Row], limit: int, make: Callable[[Row], T], key: Callable[[Row], Sequence[Any]]) -> Page[T]:
    """Return a page of at most ``limit`` items from rows of which one more than ``limit`` was asked for."""
    more = len(rows) > limit
    shown = rows[:limit]
    return Page[T](items=tuple(make(row) for row in shown), next_cursor=encode(*key(shown[-1])) if more else None)


def every(read: Callable[..., Page[T]]) -> Iterator[T]:
    """Yield the items of all pages of a list that takes ``limit`` and ``cursor``."""
    cursor = None
    while True:
        found = read(limit=MAX_LIMIT, cursor=cursor)
        yield from found.items
        cursor = found.next_cursor
        if cursor is None:
            return


def _part(part: Any, kind: type) -> Any:
    if kind is UUID and isinstance(part, str):
        try:
            return UUID(part)
        except ValueError:
            raise refusal() from None
    if type(part) is not kind or (isinstance(part, int) and not -(2**63) <= part < 2**63):
        raise refusal()
    if isinstance(part, str) and storable(part) != part:
        raise refusal()
    return part


def refusal() -> InvalidInputError:
    """Return what is raised for a cursor that is none of a list."""
    flaw = FieldError(
        "is not a cursor of this list: pass on `next_cursor` of the page before, unchanged", where="cursor"
    )
    return InvalidInputError("The cursor cannot be used.", flaws=(flaw,))
