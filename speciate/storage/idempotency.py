"""Keys that make a request safe to repeat: whoever sends the same again gets what was made then."""

from __future__ import annotations

from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.errors import ConflictError
from speciate.storage.tables import DEFAULT_PROJECT_ID, idempotency_keys


def key_in(project: UUID, key: str) -> str:
    """Return a key as it is kept: each project has its own. No key that a client may send holds a blank."""
    return key if project == DEFAULT_PROJECT_ID else f"{project} {key}"


def hold_key(connection: sa.Connection, key: str, digest: str, resource_id: UUID) -> UUID:
    """Return the id of what a key stands for: ``resource_id`` when it is new.

    Args:
        connection: In the transaction that makes the thing.
        key: The key.
        digest: Of the request.
        resource_id: Id of what is about to be made.

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
