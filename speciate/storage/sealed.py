"""Which of the sealed secrets open with the secret key of this process: for the API's metrics and for ``doctor``."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Self

import sqlalchemy as sa

from speciate.egress.sealing import Sealer
from speciate.storage.database import patient
from speciate.storage.policy_keys import purpose as purpose_of_key
from speciate.storage.webhooks import purpose as purpose_of_webhook

_KEYS: Final = sa.text(
    "SELECT k.id, k.sealed, min(p.slug) AS slug FROM policy_keys k"
    " LEFT JOIN policies p ON p.definition ->> 'api_key_id' = k.id GROUP BY k.id ORDER BY k.id"
)
_WEBHOOKS: Final = sa.text("SELECT id, sealed FROM webhooks ORDER BY id")


@dataclass(frozen=True, slots=True)
class Standing:
    """How the sealed secrets stand to a secret key.

    Attributes:
        keyless: Whether there is no secret key at all.
        open: How many secrets open.
        shut: What does not open, in words: ``the key of policy hosted``, ``webhook 019a…``.
    """

    keyless: bool
    open: int
    shut: tuple[str, ...]


@dataclass
class SealedSecrets:
    """Tries whether secrets open; what is in them is not kept.

    Attributes:
        patience_s: Seconds that a call waits for a server that restarts.
    """

    _engine: sa.Engine
    _sealer: Sealer
    patience_s: float = 5.0

    def impatient(self, engine: sa.Engine) -> Self:
        """Return the same on an engine of the caller's own, without waiting for a server that restarts."""
        return replace(self, _engine=engine, patience_s=0.0)

    @patient
    def standing(self) -> Standing:
        """Try every secret."""
        with self._engine.connect() as connection:
            keys = connection.execute(_KEYS).all()
            webhooks = connection.execute(_WEBHOOKS).all()
        found = [
            (f"the key of policy {key.slug}" if key.slug else f"key {key.id}", purpose_of_key(key.id), key.sealed)
            for key in keys
        ]
        found += [(f"webhook {each.id}", purpose_of_webhook(each.id), each.sealed) for each in webhooks]
        shut = tuple(what for what, purpose, sealed in found if not self._sealer.opens(purpose, sealed))
        return Standing(self._sealer.keyless, len(found) - len(shut), shut)
