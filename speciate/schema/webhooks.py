"""Records of webhooks and deliveries."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from speciate.domain.webhook import DeliveryState, WebhookEvent
from speciate.schema.base import Record


class WebhookRecord(Record):
    """A subscription of a URL to events of a project."""

    id: UUID
    url: str
    events: tuple[WebhookEvent, ...]
    description: str
    created_at: datetime


class NewWebhook(WebhookRecord):
    """A new webhook.

    Attributes:
        secret: Key of the signatures. This is the only time that it is returned.
    """

    secret: str


class DeliveryRecord(Record):
    """Delivery of one event to one webhook.

    Attributes:
        attempts: Attempts so far.
        due_at: Time of the next attempt, or of the last one.
        ended_at: Time when it was accepted or abandoned.
        status: HTTP status of the latest response; None without a response.
        error: Error of the latest attempt. It may quote the receiver: untrusted text of bounded length.
    """

    id: UUID
    webhook_id: UUID
    event: WebhookEvent
    state: DeliveryState
    attempts: int
    created_at: datetime
    due_at: datetime
    ended_at: datetime | None
    status: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class DueDelivery:
    """A delivery that is due.

    Attributes:
        id: ID of the delivery, the same for every attempt.
        webhook_id: The webhook.
        url: Its URL.
        sealed: The webhook's encrypted secret.
        event: Type of the event.
        data: Data of the event.
        created_at: Time of the event.
        attempts: Number of this attempt, counted from 1.
        claimed_at: Time of this attempt, by the database's clock.
    """

    id: UUID
    webhook_id: UUID
    url: str
    sealed: str = field(repr=False)
    event: WebhookEvent
    data: dict[str, Any]
    created_at: datetime
    attempts: int
    claimed_at: datetime
