"""Webhooks and deliveries as they are read back."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from speciate.domain.webhook import DeliveryState, WebhookEvent
from speciate.ports.records.base import Record


class WebhookRecord(Record):
    """Where events of a project are sent."""

    id: UUID
    url: str
    events: tuple[WebhookEvent, ...]
    description: str
    created_at: datetime


class NewWebhook(WebhookRecord):
    """A webhook that was just made.

    Attributes:
        secret: Signs what is sent. It is shown here and never again.
    """

    secret: str


class DeliveryRecord(Record):
    """One event for one webhook.

    Attributes:
        attempts: How often it was sent.
        due_at: When it is sent next, or was to be sent last.
        ended_at: When it was taken or given up.
        status: Status of the latest answer, None where there was none.
        error: What went wrong at the latest attempt; a receiver's own words are bounded and not to be trusted.
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
    """A delivery that is to be sent now.

    Attributes:
        id: Its id; equal for every attempt.
        webhook_id: Whose it is.
        url: Where it goes.
        sealed: The webhook's secret, sealed.
        event: What happened.
        data: The facts.
        created_at: When it happened.
        attempts: Which attempt this is, counted from 1.
    """

    id: UUID
    webhook_id: UUID
    url: str
    sealed: str = field(repr=False)
    event: WebhookEvent
    data: dict[str, Any]
    created_at: datetime
    attempts: int
