"""Store webhooks and their deliveries; PostgreSQL is the queue that leases deliveries to senders."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from speciate.domain.errors import NotFoundError
from speciate.domain.webhook import GIVE_UP_AFTER_S, DeliveryState, Webhook, WebhookEvent
from speciate.egress.sealing import Sealer
from speciate.ids import uuid7
from speciate.schema.base import Page
from speciate.schema.webhooks import DeliveryRecord, DueDelivery, NewWebhook, WebhookRecord
from speciate.storage import cursors
from speciate.storage.database import ScopedStore, reading, with_retries
from speciate.storage.tables import webhook_deliveries, webhooks
from speciate.storage.webhooks.queue import enqueue

LEASE_S: Final = 30.0
"""Seconds until another sender may send a leased delivery; longer than an attempt takes."""

KEPT_S: Final = 30 * 24 * 3600.0
"""Seconds for which finished deliveries are kept."""

# One delivery at a time per webhook, so that a silent receiver blocks one sender only. Webhooks are drawn at random:
# in a fixed order the first ones with long queues would starve the others.
_CLAIM = sa.text(
    "WITH firsts AS (SELECT DISTINCT ON (d.webhook_id) d.id FROM webhook_deliveries d WHERE d.state = 'pending'"
    " AND d.due_at <= clock_timestamp() AND NOT EXISTS (SELECT 1 FROM webhook_deliveries o"
    " WHERE o.webhook_id = d.webhook_id AND o.state = 'pending' AND o.lease_until > clock_timestamp())"
    " ORDER BY d.webhook_id, d.due_at), due AS (SELECT id FROM firsts ORDER BY random() LIMIT :limit)"
    " UPDATE webhook_deliveries d SET lease_until = clock_timestamp() + make_interval(secs => :lease_s),"
    " attempts = d.attempts + 1 FROM due, webhooks w WHERE d.id = due.id AND w.id = d.webhook_id"
    " AND d.state = 'pending' AND (d.lease_until IS NULL OR d.lease_until <= clock_timestamp())"
    " RETURNING d.id, d.webhook_id, w.url, w.sealed, d.event, d.data, d.created_at, d.attempts,"
    " clock_timestamp() AS claimed_at"
)
_DELIVERED = sa.text(
    "UPDATE webhook_deliveries SET state = 'delivered', ended_at = clock_timestamp(), lease_until = NULL,"
    " status = :status, error = NULL WHERE id = :id AND state = 'pending'"
)
_POSTPONE = sa.text(
    "UPDATE webhook_deliveries SET lease_until = NULL, status = :status, error = :error,"
    " due_at = clock_timestamp() + make_interval(secs => :wait_s),"
    " state = CASE WHEN clock_timestamp() + make_interval(secs => :wait_s) > created_at"
    " + make_interval(secs => :tried_for_s) THEN 'failed' ELSE 'pending' END,"
    " ended_at = CASE WHEN clock_timestamp() + make_interval(secs => :wait_s) > created_at"
    " + make_interval(secs => :tried_for_s) THEN clock_timestamp() END"
    " WHERE id = :id AND state = 'pending' AND attempts = :attempts"
)
_DELETE_OLD = sa.text(
    "DELETE FROM webhook_deliveries WHERE state <> 'pending'"
    " AND ended_at < clock_timestamp() - make_interval(secs => :kept_s)"
)


@dataclass
class WebhookStore(ScopedStore):
    """Webhooks and their deliveries."""

    _sealer: Sealer

    def add(self, webhook: Webhook) -> NewWebhook:
        """Store a webhook with a new secret, which only this call returns.

        Raises:
            SecretKeyError: No secret key is configured.
        """
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

    @with_retries
    def get(self, webhook_id: UUID) -> WebhookRecord:
        """Return a webhook.

        Raises:
            NotFoundError: No such webhook exists.
        """
        with reading(self._engine) as connection:
            row = connection.execute(sa.select(webhooks).where(self._mine(webhook_id))).one_or_none()
        if row is None:
            raise _unknown(webhook_id)
        return WebhookRecord.model_validate(row._asdict())

    @with_retries
    def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[WebhookRecord]:
        """Return webhooks, newest first."""
        query = cursors.newest_first(webhooks, limit, cursor)
        if self.project is not None:
            query = query.where(webhooks.c.project_id == self.project)
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
        return cursors.page(rows, limit, lambda row: WebhookRecord.model_validate(row._asdict()), cursors.by_id)

    @with_retries
    def remove(self, webhook_id: UUID) -> None:
        """Delete a webhook and its deliveries.

        Raises:
            NotFoundError: No such webhook exists.
        """
        with self._engine.begin() as connection:
            if not connection.execute(sa.delete(webhooks).where(self._mine(webhook_id))).rowcount:
                raise _unknown(webhook_id)

    def test(self, webhook_id: UUID) -> DeliveryRecord:
        """Enqueue a test event for a webhook.

        Raises:
            NotFoundError: No such webhook exists.
        """
        return self._test(webhook_id, uuid7())

    @with_retries
    def _test(self, webhook_id: UUID, delivery_id: UUID) -> DeliveryRecord:
        values = {
            "id": delivery_id,
            "webhook_id": webhook_id,
            "event": WebhookEvent.TEST.value,
            "data": {"message": "This is a test."},
        }
        with self._engine.begin() as connection:
            # Locked, so that it is not removed before the delivery refers to it.
            locked = sa.select(webhooks.c.id).where(self._mine(webhook_id)).with_for_update(read=True, key_share=True)
            if connection.execute(locked).one_or_none() is None:
                raise _unknown(webhook_id)
            connection.execute(insert(webhook_deliveries).values(values).on_conflict_do_nothing())
            query = sa.select(webhook_deliveries).where(webhook_deliveries.c.id == delivery_id)
            return _delivery(connection.execute(query).one())

    @with_retries
    def deliveries(
        self, webhook_id: UUID, *, state: DeliveryState | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[DeliveryRecord]:
        """Return the deliveries of a webhook, newest first.

        Raises:
            NotFoundError: No such webhook exists.
        """
        self.get(webhook_id)
        table = webhook_deliveries
        query = cursors.newest_first(table, limit, cursor).where(table.c.webhook_id == webhook_id)
        if state is not None:
            query = query.where(table.c.state == state.value)
        with reading(self._engine) as connection:
            rows = connection.execute(query).all()
        return cursors.page(rows, limit, _delivery, cursors.by_id)

    @with_retries
    def alarm(self, name: str, message: str, facts: Mapping[str, Any] | None = None) -> int:
        """Enqueue an alarm for the project's webhooks (the default project's if unscoped), and return their number.

        Args:
            name: Kind of alarm, such as ``run.stuck``.
            message: Description for people.
            facts: Additional JSON values; ``run_id`` adds links to the run.
        """
        with self._engine.begin() as connection:
            data = {"name": name, "message": message, **(facts or {})}
            return enqueue(connection, WebhookEvent.ALARM, self._home, data)

    @with_retries
    def claim(self, limit: int) -> tuple[DueDelivery, ...]:
        """Lease due deliveries, at most one per webhook."""
        with self._engine.begin() as connection:
            rows = connection.execute(_CLAIM, {"limit": limit, "lease_s": LEASE_S}).all()
        return tuple(DueDelivery(**{**row._asdict(), "event": WebhookEvent(row.event)}) for row in rows)

    @with_retries
    def delivered(self, parcel: DueDelivery, status: int) -> None:
        """Record that a receiver accepted a delivery."""
        with self._engine.begin() as connection:
            connection.execute(_DELIVERED, {"id": parcel.id, "status": status})

    @with_retries
    def postpone(self, parcel: DueDelivery, status: int | None, error: str, wait_s: float) -> None:
        """Record a failed attempt; retry after ``wait_s`` seconds, or give up if that is too late."""
        values = {"id": parcel.id, "status": status, "error": error, "wait_s": wait_s, "attempts": parcel.attempts}
        with self._engine.begin() as connection:
            connection.execute(_POSTPONE, {**values, "tried_for_s": GIVE_UP_AFTER_S})

    @with_retries
    def delete_old(self) -> int:
        """Delete deliveries that finished long ago, and return their number."""
        with self._engine.begin() as connection:
            return connection.execute(_DELETE_OLD, {"kept_s": KEPT_S}).rowcount

    @with_retries
    def renew(self) -> int:
        """Seal every secret again with the first secret key, and return the number; raises ``SecretKeyError``."""
        with self._engine.begin() as connection:
            rows = connection.execute(sa.select(webhooks.c.id, webhooks.c.sealed).with_for_update()).all()
            for row in rows:
                sealed = self._sealer.renew(webhook_purpose(row.id), row.sealed)
                connection.execute(sa.update(webhooks).where(webhooks.c.id == row.id).values(sealed=sealed))
        return len(rows)

    def secret_of(self, parcel: DueDelivery) -> str:
        """Return the secret that signs a delivery; raises ``SecretKeyError``."""
        return self._sealer.open(webhook_purpose(parcel.webhook_id), parcel.sealed)

    def _mine(self, webhook_id: UUID) -> sa.ColumnElement[bool]:
        by_id = webhooks.c.id == webhook_id
        return by_id if self.project is None else sa.and_(by_id, webhooks.c.project_id == self.project)


def webhook_purpose(webhook_id: UUID) -> str:
    """Return the context that a sealed webhook secret is bound to."""
    return f"webhook:{webhook_id}"


def _unknown(webhook_id: UUID) -> NotFoundError:
    return NotFoundError(f"there is no webhook {webhook_id}.")


def _delivery(row: sa.Row[Any]) -> DeliveryRecord:
    return DeliveryRecord.model_validate(row._asdict())
