"""Filters and pages of lists, and the opaque cursors that continue them."""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import sqlalchemy as sa

from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.values import storable
from speciate.schema.base import Page

MAX_LIMIT = 500
"""Maximum number of items of a page."""

T = TypeVar("T")
Row = TypeVar("Row")


def encode(*key: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def decode(cursor: str, kinds: Sequence[type]) -> list[Any]:
    """Return the sort key of a cursor, whose parts have these types; ``InvalidInputError`` if it has others."""
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (ValueError, binascii.Error, RecursionError):
        key = None
    if not isinstance(key, list) or len(key) != len(kinds):
        raise refusal()
    return [_part(part, kind) for part, kind in zip(key, kinds, strict=True)]


def decode_id(cursor: str) -> UUID:
    """Return the id in the cursor of a list sorted by id; raises as ``decode`` does."""
    key: UUID = decode(cursor, [UUID])[0]
    return key


def page(rows: Sequence[Row], limit: int, make: Callable[[Row], T], key: Callable[[Row], Sequence[Any]]) -> Page[T]:
    """Return a page of at most ``limit`` items; ``rows`` holds one more if there is a next page."""
    more = len(rows) > limit
    rows = rows[:limit]
    return Page[T](items=tuple(make(row) for row in rows), next_cursor=encode(*key(rows[-1])) if more else None)


def newest_first(table: sa.Table, limit: int, cursor: str | None, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Select a page of a table by descending id, with one row more than ``limit`` for ``page``."""
    query = sa.select(*columns or (table,)).order_by(table.c.id.desc()).limit(limit + 1)
    return query if cursor is None else query.where(table.c.id < decode_id(cursor))


def by_id(row: sa.Row[Any]) -> list[str]:
    return [str(row.id)]


def every(read: Callable[..., Page[T]]) -> Iterator[T]:
    """Yield the items of all pages of a list function with ``limit`` and ``cursor``."""
    cursor = None
    while True:
        batch = read(limit=MAX_LIMIT, cursor=cursor)
        yield from batch.items
        cursor = batch.next_cursor
        if cursor is None:
            return


_BIND = re.compile(r"(?<!:):(\w+)")


def where(conditions: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the WHERE clause of the conditions with a value other than None, and the values to bind.

    Each condition names one parameter, such as ``r.id < :after``.
    """
    filters = {condition: value for condition, value in conditions.items() if value is not None}
    binds = {_BIND.findall(condition)[0]: value for condition, value in filters.items()}
    return (" WHERE " + " AND ".join(filters) if filters else ""), binds


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
    field_error = FieldError(
        "is not a cursor of this list: pass `next_cursor` of the previous page unchanged", where="cursor"
    )
    return InvalidInputError("The cursor is invalid.", field_errors=(field_error,))
