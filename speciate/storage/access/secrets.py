"""Store the sealed API keys of policies, and count the secrets that the secret keys open."""

from dataclasses import dataclass

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.errors import UnavailableError
from speciate.egress.sealing import Sealer
from speciate.ids import uuid7
from speciate.storage.database import Store, reading, with_retries
from speciate.storage.tables.catalog import policies, policy_keys
from speciate.storage.tables.webhooks import webhooks
from speciate.storage.webhooks.store import renew_sealed, webhook_purpose


@dataclass
class PolicyKeyStore(Store):
    """Seals, stores and opens API keys. Sealing raises ``SecretKeyError`` without a key."""

    _sealer: Sealer

    def new_id(self) -> str:
        """Return the id for a key to store."""
        key_id = str(uuid7())
        self._sealer.seal(key_purpose(key_id), "")
        return key_id

    def store(self, key_id: str, key: str) -> None:
        """Store a key, replacing one of the same id."""
        sealed = self._sealer.seal(key_purpose(key_id), key)
        statement = insert(policy_keys).values(id=key_id, sealed=sealed)
        self._execute(statement.on_conflict_do_update(index_elements=["id"], set_={"sealed": sealed}))

    def open(self, key_id: str) -> str:
        """Return a key; ``SecretKeyError`` if the configured secret keys do not open it."""
        sealed = self._value(sa.select(policy_keys.c.sealed).where(policy_keys.c.id == key_id))
        if sealed is None:
            raise UnavailableError(
                f"no API key is stored as {key_id}.", remedy="Register the policy again with its api_key."
            )
        return self._sealer.open(key_purpose(key_id), sealed)

    @with_retries
    def renew(self) -> int:
        """Seal every key again with the first secret key, all or none, and return the number of keys."""
        with self._engine.begin() as connection:
            return renew_sealed(connection, policy_keys, self._sealer, key_purpose)


def key_purpose(key_id: str) -> str:
    return f"policy-key:{key_id}"


@dataclass(frozen=True, slots=True)
class SecretsCheck:
    """Result of trying to open all sealed secrets."""

    keyless: bool
    """True if no secret key is configured."""
    opened: int
    unopened: tuple[str, ...]
    """Descriptions of the others: ``the key of policy hosted``, ``webhook 019a…``."""


@dataclass
class SealedSecrets(Store):
    """Checks if secrets open, and discards their contents."""

    sealer: Sealer

    @with_retries
    def check(self) -> SecretsCheck:
        with reading(self._engine) as connection:
            of_policy = policies.c.definition["api_key_id"].astext == policy_keys.c.id
            query = sa.select(policy_keys.c.id, policy_keys.c.sealed, sa.func.min(policies.c.slug).label("slug"))
            query = query.select_from(policy_keys.outerjoin(policies, of_policy))
            keys = connection.execute(query.group_by(policy_keys.c.id).order_by(policy_keys.c.id)).all()
            hooks = connection.execute(sa.select(webhooks.c.id, webhooks.c.sealed).order_by(webhooks.c.id)).all()
        secrets = [
            (f"the key of policy {key.slug}" if key.slug else f"key {key.id}", key_purpose(key.id), key.sealed)
            for key in keys
        ]
        secrets += [(f"webhook {each.id}", webhook_purpose(each.id), each.sealed) for each in hooks]
        unopened = tuple(what for what, purpose, sealed in secrets if not self.sealer.opens(purpose, sealed))
        return SecretsCheck(self.sealer.keyless, len(secrets) - len(unopened), unopened)
