"""Idempotency keys: a repeated request returns the resource of the first one."""

from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.errors import ConflictError
from speciate.storage.tables.access import idempotency_keys


def scoped_key(project: UUID, key: str) -> str:
    """Return an idempotency key as stored, unique per project.

    A client's key contains no blank; the service's own keys do, so that no client takes one.
    """
    return f"{project} {key}"


def claim_key(connection: sa.Connection, key: str, digest: str, resource_id: UUID) -> UUID:
    """Claim a ``scoped_key``, and return the id of its resource: ``resource_id`` if the key is new.

    ``ConflictError`` if it was used for a request of another digest.
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
    owner: UUID = row.resource_id
    return owner
