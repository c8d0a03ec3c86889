"""Records of webhooks and deliveries."""

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
    secret: str
    """Key of the signatures. This is the only time that it is returned."""


class DeliveryRecord(Record):
    id: UUID
    webhook_id: UUID
    event: WebhookEvent
    state: DeliveryState
    attempts: int
    created_at: datetime
    due_at: datetime
    """Time of the next attempt, or of the last one."""
    ended_at: datetime | None
    """Time when it was accepted or abandoned."""
    status: int | None
    """HTTP status of the latest response; None without a response."""
    error: str | None
    """Error of the latest attempt. It may quote the receiver: untrusted text of bounded length."""


@dataclass(frozen=True, slots=True)
class DueDelivery:
    id: UUID
    """ID of the delivery, the same for every attempt."""
    webhook_id: UUID
    url: str
    sealed: str = field(repr=False)
    event: WebhookEvent
    data: dict[str, Any]
    created_at: datetime
    """Time of the event."""
    attempts: int
    """Number of this attempt, counted from 1."""
    claimed_at: datetime
    """Time of this attempt, by the database's clock."""
