"""What tournaments and campaigns have in common as rows: declared once under a name, then only their state changes."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Protocol, TypeVar
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.errors import ConflictError, NotFoundError
from speciate.domain.values import storable
from speciate.domain.webhook import WebhookEvent
from speciate.ports.records.base import Page
from speciate.storage import cursors
from speciate.storage.rows import hold_key, key_in, named
from speciate.storage.tables import DEFAULT_PROJECT_ID
from speciate.storage.webhooks.queue import enqueue

_ENDED = ("completed", "cancelled")

Record = TypeVar("Record")


class Declaration(Protocol):
    """What can be declared."""

    @property
    def slug(self) -> str:
        """Its name."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        ...

    def stored_json(self) -> dict[str, Any]:
        """Return it as JSON values, as tables keep it."""
        ...


def declare(
    connection: sa.Connection,
    table: sa.Table,
    new_id: UUID,
    declared: Declaration,
    *,
    project: UUID | None,
    noun: str,
    request_digest: str,
    key: str | None,
    fill: Callable[[], None],
) -> tuple[UUID, bool]:
    """Keep a declaration; it begins at once.

    Args:
        connection: In a transaction.
        table: Where it goes.
        new_id: Its id, the same one when this is repeated after a lost connection.
        declared: The declaration.
        project: The project it belongs to; None is the default one.
        noun: What it is, in words.
        request_digest: Of the request, for its key.
        key: Idempotency key, if there is one.
        fill: Writes what belongs to a new one.

    Returns:
        The id, and whether it is new: the same declaration again is the same one.

    Raises:
        ConflictError: The name is taken by another declaration, or the key was used for another request.
    """
    home = project or DEFAULT_PROJECT_ID
    if key is not None:
        key = key_in(home, key)
        held = hold_key(connection, key, request_digest, new_id)
        if held != new_id:
            return held, False
    values = {
        "id": new_id,
        "project_id": home,
        "slug": declared.slug,
        "digest": declared.digest,
        "declaration": declared.stored_json(),
        "state": "running",
    }
    statement = insert(table).values(values).on_conflict_do_nothing().returning(table.c.id)
    if connection.execute(statement).one_or_none() is not None:
        fill()
        return new_id, True
    row = connection.execute(sa.select(table).where(named(table, declared.slug, home))).one()
    if row.digest != declared.digest:
        raise ConflictError(
            f"there is a {noun} {declared.slug!r} already, declared otherwise.",
            remedy="Declarations are immutable: choose another name.",
        )
    if key is not None and row.id != new_id:
        connection.execute(
            sa.text("UPDATE idempotency_keys SET resource_id = :id WHERE key = :key"), {"id": row.id, "key": key}
        )
    return row.id, row.id == new_id


def page(
    connection: sa.Connection,
    select: str,
    make: Callable[[sa.Row[Any]], Record],
    *,
    state: StrEnum | None,
    project: UUID | None,
    limit: int,
    cursor: str | None,
) -> Page[Record]:
    """Return a page of what was declared, newest first.

    Args:
        connection: To read with.
        select: ``SELECT … FROM``, without ``WHERE``; ``id``, ``state`` and ``project_id`` name one column each in it.
        make: Makes the record of a row.
        state: Only what is in this state.
        project: Only what is in this project.
        limit: Most records of the page.
        cursor: Where the page begins; from the page before it.
    """
    wanted = {
        "state = :state": state.value if state else None,
        "id < :after": cursors.decode_id(cursor) if cursor else None,
        "project_id = :project": project,
    }
    clauses = [clause for clause, value in wanted.items() if value is not None]
    where = f" WHERE {' AND '.join(clauses)}" if clauses else ""
    binds = {clause.rpartition(":")[2]: value for clause, value in wanted.items() if value is not None}
    query = sa.text(f"{select}{where} ORDER BY id DESC LIMIT :limit")
    rows = connection.execute(query, {**binds, "limit": limit + 1}).all()
    return cursors.page(rows, limit, make, lambda row: [str(row.id)])


def project_of(connection: sa.Connection, table: sa.Table, declared_id: UUID) -> UUID:
    """Return the project that something was declared in."""
    found: UUID = connection.execute(sa.select(table.c.project_id).where(table.c.id == declared_id)).scalar_one()
    return found


def lock(connection: sa.Connection, table: sa.Table, declared_id: UUID, *, noun: str) -> sa.Row[Any]:
    """Return a row that nobody else changes until the transaction ends.

    Raises:
        NotFoundError: There is none.
    """
    row = connection.execute(sa.select(table).where(table.c.id == declared_id).with_for_update()).one_or_none()
    if row is None:
        raise NotFoundError(f"there is no {noun} {declared_id}.")
    return row


def set_waiting(connection: sa.Connection, table: sa.Table, declared_id: UUID, reason: str | None) -> None:
    """Say why something that goes on starts nothing just now, or with None that it does."""
    changed = table.c.reason.is_distinct_from(reason)
    mine = sa.and_(table.c.id == declared_id, table.c.state == "running", changed)
    connection.execute(sa.update(table).where(mine).values(reason=reason))


def tell_fault(connection: sa.Connection, row: sa.Row[Any], noun: str, reason: str | None) -> None:
    """Tell webhooks that something declared was paused though nobody asked for it.

    Args:
        connection: In the transaction that pauses it.
        row: Its row.
        noun: What it is, in words.
        reason: Why.
    """
    data = {"name": f"{noun}.paused", "message": reason, noun: row.slug}
    enqueue(connection, WebhookEvent.ALARM, row.project_id, data)


def set_state(connection: sa.Connection, table: sa.Table, declared_id: UUID, state: str, reason: str | None) -> None:
    """Write a state with its reason, and the time where it is an end."""
    connection.execute(
        sa.update(table)
        .where(table.c.id == declared_id)
        .values(
            state=state,
            reason=None if reason is None else storable(reason)[:2000],
            finished_at=sa.func.now() if state in _ENDED else None,
        )
    )
