"""The keys of policies' endpoints, sealed. Only what asks a policy opens one; nothing ever lists them."""

from __future__ import annotations

import threading
import time
from typing import Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.errors import UnavailableError
from speciate.egress.sealing import Sealer
from speciate.storage.database import patient, reading
from speciate.storage.ids import uuid7
from speciate.storage.tables import policy_keys

OPENED_S: Final = 10.0
"""Seconds for which an opened key is used again: as long does an exchanged one live on in a worker."""


class PolicyKeys:
    """Seals, keeps and opens keys. May be used from several threads.

    Args:
        engine: The database.
        sealer: What seals.
    """

    patience_s: float = 5.0

    def __init__(self, engine: sa.Engine, sealer: Sealer) -> None:
        self._engine = engine
        self._sealer = sealer
        self._lock = threading.Lock()
        self._opened: dict[str, tuple[str, float]] = {}

    def new_id(self) -> str:
        """Return the id of a key that is still to be stored.

        Raises:
            SecretKeyError: None could be stored.
        """
        key_id = str(uuid7())
        self._sealer.seal(purpose(key_id), "")
        return key_id

    @patient
    def store(self, key_id: str, key: str) -> None:
        """Keep a key; one that is kept under this id already is exchanged.

        Raises:
            SecretKeyError: There is no secret key to seal it with.
        """
        sealed = self._sealer.seal(purpose(key_id), key)
        statement = insert(policy_keys).values(id=key_id, sealed=sealed)
        with self._engine.begin() as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_={"sealed": sealed}))
        with self._lock:
            self._opened.pop(key_id, None)

    def open(self, key_id: str) -> str:
        """Return a key.

        Raises:
            UnavailableError: It was never stored.
            SecretKeyError: It cannot be opened here.
        """
        with self._lock:
            key, until = self._opened.get(key_id, ("", 0.0))
        if time.monotonic() >= until:
            key = self._read(key_id)
            with self._lock:
                self._opened[key_id] = key, time.monotonic() + OPENED_S
        return key

    @patient
    def renew(self) -> int:
        """Seal every key anew by the first secret key; return how many there are.

        Raises:
            SecretKeyError: One does not open; nothing was changed.
        """
        with self._engine.begin() as connection:
            rows = connection.execute(sa.select(policy_keys.c.id, policy_keys.c.sealed).with_for_update()).all()
            for row in rows:
                sealed = self._sealer.renew(purpose(row.id), row.sealed)
                connection.execute(sa.update(policy_keys).where(policy_keys.c.id == row.id).values(sealed=sealed))
        return len(rows)

    @patient
    def _read(self, key_id: str) -> str:
        with reading(self._engine) as connection:
            sealed = connection.execute(sa.select(policy_keys.c.sealed).where(policy_keys.c.id == key_id)).scalar()
        if sealed is None:
            raise UnavailableError(f"no key is kept as {key_id}.", remedy="Register the policy again with its api_key.")
        return self._sealer.open(purpose(key_id), sealed)


def purpose(key_id: str) -> str:
    """Return what a key is sealed for."""
    return f"policy-key:{key_id}"
