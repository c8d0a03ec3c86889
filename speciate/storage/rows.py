"""Helpers of all stores: time-ordered ids, lookup by name, stored definitions, idempotency keys."""

from __future__ import annotations

import os
import re
import secrets
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, TypeVar
from uuid import UUID

import sqlalchemy as sa
from pydantic import ValidationError
from sqlalchemy.dialects.postgresql import insert

from speciate import __version__
from speciate.domain.errors import ConflictError, FieldError, InvalidInputError, NewerRecordError, NotFoundError
from speciate.domain.suggestions import did_you_mean
from speciate.domain.values import Value, storable
from speciate.storage.tables import DEFAULT_PROJECT_ID, idempotency_keys

_MOST_COMPARED: Final = 1000
_MOST_BACK_MS: Final = 600_000
_STEP_BITS: Final = 48  # forked processes start from the same id: their steps must not meet

_id_lock = threading.Lock()
_last_id = 0


def _renew_lock() -> None:
    global _id_lock  # noqa: PLW0603
    _id_lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)  # another thread of the parent may hold the lock


def uuid7() -> UUID:
    """Return a new UUIDv7 (RFC 9562, section 5.7): 48 bits of milliseconds, 74 random bits.

    The ids of a process ascend, also within a millisecond and when its clock is set back by minutes: they then continue
    from the last one in random steps (section 6.2, method 2), so that lists stay in the order of creation. After a
    larger step back, such as the correction of a clock that was wrong at boot, they follow the clock.
    """
    global _last_id  # noqa: PLW0603
    bits = (time.time_ns() // 1_000_000) << 74 | secrets.randbits(74)
    with _id_lock:
        if bits <= _last_id < bits + (_MOST_BACK_MS << 74):
            bits = _last_id + 1 + secrets.randbits(_STEP_BITS)
        _last_id = bits
    high = (bits >> 74 << 16) | 0x7000 | (bits >> 62 & 0x0FFF)
    return UUID(int=high << 64 | 0x8000 << 48 | bits & (1 << 62) - 1)


def floor7(at: float) -> UUID:
    """Return the smallest UUIDv7 of a time in seconds since the epoch."""
    return UUID(int=(int(at * 1000) << 80) | 0x7000 << 64 | 0x8000 << 48)


def named(table: sa.Table, name: str | UUID, project: UUID | None) -> sa.ColumnElement[bool]:
    """Return the condition that selects a row by id or slug in a project; a malformed name selects none."""
    try:
        by_id = table.c.id == (name if isinstance(name, UUID) else UUID(name))
    except ValueError:
        return sa.and_(table.c.slug == storable(str(name)), table.c.project_id == (project or DEFAULT_PROJECT_ID))
    return by_id if project is None else sa.and_(by_id, table.c.project_id == project)


def require_page_name(slug: str) -> None:
    """Raise ``InvalidInputError`` for the one name whose page the dashboard's form hides."""
    if slug == "new":
        field_error = FieldError("'new' is the address of a form: choose another name", where="slug")
        raise InvalidInputError(f"The name is not valid: {field_error}", field_errors=(field_error,))


def not_found(
    connection: sa.Connection, table: sa.Table, what: str, name: str | UUID, project: UUID | None
) -> NotFoundError:
    """Return the error for a name without a row; it suggests the nearest visible names of the project."""
    slug, _, _ = str(name).partition("@")
    hidden = [table.c[column].is_(None) for column in ("archived_at", "deleted_at") if column in table.c]
    mine = table.c.project_id == (project or DEFAULT_PROJECT_ID)
    newest = sa.select(table.c.slug).where(mine, *hidden).order_by(table.c.id.desc()).limit(_MOST_COMPARED)
    known = dict.fromkeys(connection.execute(newest).scalars())
    return NotFoundError(f"there is no {what} {str(name)[:200]!r}.", remedy=did_you_mean(slug, known))


_BIND = re.compile(r"(?<!:):(\w+)")


def where(conditions: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the WHERE clause of the conditions with a value other than None, and the values to bind.

    Args:
        conditions: Value of each condition, which names one parameter, such as ``r.id < :after``.
    """
    given = {condition: value for condition, value in conditions.items() if value is not None}
    binds = {_BIND.findall(condition)[0]: value for condition, value in given.items()}
    return (" WHERE " + " AND ".join(given) if given else ""), binds


def attested(table: str) -> str:
    """Return SQL that is true if the rewards of a problem come from external evaluators."""
    stage = f"coalesce({table}definition -> 'stages' -> -1 ->> 'evaluation', '')"
    return f"'external' IN (coalesce({table}definition ->> 'evaluation', ''), {stage})"


V = TypeVar("V", bound=Value)


def read_stored(kind: type[V], values: Any) -> V:
    """Return a value from its JSON in a table, as ``Value.stored_json`` wrote it.

    Raises:
        NewerRecordError: A newer version wrote it.
    """
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        # The message names fields, not their values, which are users' texts.
        places = ", ".join(
            ".".join(map(str, field_error["loc"])) or "the whole value" for field_error in error.errors()[:3]
        )
        raise NewerRecordError(
            f"a {kind.__name__} in the database cannot be read by this process of version {__version__}: {places}.",
            remedy="A newer version wrote it: restart this process with that version.",
        ) from None


def scoped_key(project: UUID, key: str) -> str:
    """Return an idempotency key as stored, unique per project; a client's key contains no blank."""
    return f"{project} {key}"


def claim_key(connection: sa.Connection, key: str, digest: str, resource_id: UUID) -> UUID:
    """Claim an idempotency key, and return the id of its resource: ``resource_id`` if the key is new.

    Args:
        connection: In the transaction that creates the resource.
        key: Key from ``scoped_key``.
        digest: Digest of the request.
        resource_id: Id of the resource to create.

    Raises:
        ConflictError: The key was used for another request.
    """
    connection.execute(
        insert(idempotency_keys)
        .values(key=key, request_digest=digest, resource_id=resource_id)
        .on_conflict_do_nothing()
    )
    row = connection.execute(sa.select(idempotency_keys).where(idempotency_keys.c.key == key)).one()
    if row.request_digest != digest:
        raise ConflictError(
            f"Idempotency-Key {key.rpartition(' ')[2]!r} was used for another request.",
            remedy="Use a new key for a new request.",
        )
    held: UUID = row.resource_id
    return held
