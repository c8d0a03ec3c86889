"""Store webhooks, and list their deliveries."""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.errors import NotFoundError
from speciate.domain.webhook import DeliveryState, Webhook, WebhookEvent
from speciate.egress.sealing import Sealer
from speciate.ids import uuid7
from speciate.schema.base import Page
from speciate.schema.webhooks import DeliveryRecord, DueDelivery, NewWebhook, WebhookRecord
from speciate.storage import cursors
from speciate.storage.database import with_new_id, with_retries
from speciate.storage.lookup import require_row
from speciate.storage.tables.webhooks import webhook_deliveries, webhooks
from speciate.storage.webhooks.queue import DeliveryQueue


@dataclass
class WebhookStore(DeliveryQueue):
    """Webhooks and their deliveries. Methods raise ``NotFoundError`` for an unknown webhook."""

    _sealer: Sealer

    def add(self, webhook: Webhook) -> NewWebhook:
        """Store a webhook with a new secret, which only this call returns; raises ``SecretKeyError`` without a key."""
        return self._add(webhook, uuid7(), f"whsec_{secrets.token_hex(32)}")

    @with_retries
    def _add(self, webhook: Webhook, webhook_id: UUID, secret: str) -> NewWebhook:
        values = {
            "id": webhook_id,
            "project_id": self._home,
            "url": webhook.url,
            "events": [event.value for event in webhook.events],
            "description": webhook.description,
            "sealed": self._sealer.seal(webhook_purpose(webhook_id), secret),
        }
        with self._engine.begin() as connection:
            connection.execute(insert(webhooks).values(values).on_conflict_do_nothing())
            row = connection.execute(sa.select(webhooks).where(webhooks.c.id == webhook_id)).one()
        return NewWebhook.model_validate({**row._asdict(), "secret": secret})

    def get(self, webhook_id: UUID) -> WebhookRecord:
        row = require_row(self._row(sa.select(webhooks).where(self._mine(webhook_id))), f"webhook {webhook_id}")
        return WebhookRecord.model_validate(row._asdict())

    def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[WebhookRecord]:
        query = cursors.newest_first(webhooks, limit, cursor)
        if self.project is not None:
            query = query.where(webhooks.c.project_id == self.project)
        rows = self._rows(query)
        return cursors.page(rows, limit, lambda row: WebhookRecord.model_validate(row._asdict()), cursors.by_id)

    def remove(self, webhook_id: UUID) -> None:
        if not self._execute(sa.delete(webhooks).where(self._mine(webhook_id))):
            raise NotFoundError(f"there is no webhook {webhook_id}.")

    @with_new_id
    def test(self, delivery_id: UUID, webhook_id: UUID) -> DeliveryRecord:
        """Enqueue a test event."""
        values = {
            "id": delivery_id,
            "webhook_id": webhook_id,
            "event": WebhookEvent.TEST.value,
            "data": {"message": "This is a test."},
        }
        with self._engine.begin() as connection:
            # Locked, so that it is not removed before the delivery refers to it.
            locked = sa.select(webhooks.c.id).where(self._mine(webhook_id)).with_for_update(read=True, key_share=True)
            require_row(connection.execute(locked).one_or_none(), f"webhook {webhook_id}")
            connection.execute(insert(webhook_deliveries).values(values).on_conflict_do_nothing())
            query = sa.select(webhook_deliveries).where(webhook_deliveries.c.id == delivery_id)
            return DeliveryRecord.model_validate(connection.execute(query).one()._asdict())

    def deliveries(
        self, webhook_id: UUID, *, state: DeliveryState | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[DeliveryRecord]:
        """Return the deliveries of a webhook, newest first."""
        self.get(webhook_id)
        table = webhook_deliveries
        query = cursors.newest_first(table, limit, cursor).where(table.c.webhook_id == webhook_id)
        if state is not None:
            query = query.where(table.c.state == state.value)
        rows = self._rows(query)
        return cursors.page(rows, limit, lambda row: DeliveryRecord.model_validate(row._asdict()), cursors.by_id)

    @with_retries
    def renew(self) -> int:
        """Seal every secret again with the first secret key, and return the number; raises ``SecretKeyError``."""
        with self._engine.begin() as connection:
            return renew_sealed(connection, webhooks, self._sealer, webhook_purpose)

    def secret_of(self, delivery: DueDelivery) -> str:
        """Return the secret that signs a delivery; raises ``SecretKeyError``."""
        return self._sealer.open(webhook_purpose(delivery.webhook_id), delivery.sealed)

    def _mine(self, webhook_id: UUID) -> sa.ColumnElement[bool]:
        by_id = webhooks.c.id == webhook_id
        return by_id if self.project is None else sa.and_(by_id, webhooks.c.project_id == self.project)


def renew_sealed(connection: sa.Connection, table: sa.Table, sealer: Sealer, purpose: Callable[[Any], str]) -> int:
    rows = connection.execute(sa.select(table.c.id, table.c.sealed).with_for_update()).all()
    for row in rows:
        sealed = sealer.renew(purpose(row.id), row.sealed)
        connection.execute(sa.update(table).where(table.c.id == row.id).values(sealed=sealed))
    return len(rows)


def webhook_purpose(webhook_id: UUID) -> str:
    """Return the context that a sealed secret is bound to."""
    return f"webhook:{webhook_id}"
