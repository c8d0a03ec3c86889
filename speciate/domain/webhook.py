"""Webhooks: subscriptions to events, and the retry schedule of deliveries."""

from enum import StrEnum
from typing import Final

from pydantic import Field, field_validator

from speciate.domain.values import WEB_ADDRESS, Value, stored_text

FIRST_RETRY_S: Final = 5.0
MAX_RETRY_DELAY_S: Final = 2 * 3600.0
GIVE_UP_AFTER_S: Final = 24 * 3600.0
"""Seconds after which an unaccepted delivery is given up."""


class WebhookEvent(StrEnum):
    UNLOCK = "unlock"
    """A candidate that meets a problem's unlock target was confirmed."""
    RUN_FINISHED = "run.finished"
    """A run was completed, failed or was cancelled."""
    ALARM = "alarm"
    """A run needs attention: it mostly fails, is stalled or was paused by the service."""
    TEST = "test"
    """A user requested a test delivery."""


class DeliveryState(StrEnum):
    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    """Given up."""


SUBSCRIBABLE: Final = (WebhookEvent.UNLOCK, WebhookEvent.RUN_FINISHED, WebhookEvent.ALARM)


class Webhook(Value):
    url: str = Field(max_length=2000, pattern=WEB_ADDRESS)
    """URL that receives the events by POST."""
    events: tuple[WebhookEvent, ...] = SUBSCRIBABLE
    """Subscribed events."""
    description: str = Field(default="", max_length=200)
    """One line for people."""

    @field_validator("events")
    @classmethod
    def _subscribable(cls, events: tuple[WebhookEvent, ...]) -> tuple[WebhookEvent, ...]:
        # Not by min_length: an invalid event would be reported twice.
        if not events:
            raise ValueError("expected one or several of unlock, run.finished, alarm")
        if WebhookEvent.TEST in events:
            raise ValueError("'test' is sent on request only: expected unlock, run.finished, alarm")
        return tuple(dict.fromkeys(events))

    _storable = field_validator("url", "description")(stored_text)


def retry_delay_s(attempts: int, draw: float) -> float:
    """Return the seconds until the next attempt: exponential backoff with jitter.

    ``draw``, drawn from [0, 1), is for the jitter, which spreads retries after an outage of the receiver.
    """
    return min(MAX_RETRY_DELAY_S, FIRST_RETRY_S * 2.0 ** min(attempts - 1, 20)) * (0.5 + 0.5 * draw)
