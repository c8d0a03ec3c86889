"""Webhooks of both clients, and how a receiver knows that a message is ours."""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Final
from uuid import UUID

from speciate.client.async_transport import AsyncTransport
from speciate.client.calls import Call, get, post, segment, walk
from speciate.client.transport import Transport
from speciate.domain.webhook import SUBSCRIBABLE, DeliveryState, WebhookEvent
from speciate.egress.delivery import signature
from speciate.ports.records.base import Page
from speciate.ports.records.webhooks import DeliveryRecord, NewWebhook, WebhookRecord

_LIST: Final = "/v1/webhooks"


def verify_webhook(secret: str, header: str, body: bytes, *, tolerance_s: float = 300.0) -> bool:
    """Tell whether a message was signed with a webhook's secret, and lately.

    Args:
        secret: What was shown when the webhook was made.
        header: The value of ``Speciate-Signature``.
        body: The body as it came, not read and written again.
        tolerance_s: How old the message may be, and how much the clocks may differ.
    """
    timestamp = dict(part.strip().partition("=")[::2] for part in header.split(",")).get("t", "")
    if not timestamp.isascii() or not timestamp.isdecimal() or len(timestamp) > 12:
        return False
    expected = signature(secret, int(timestamp), body)
    # Compared in constant time: how long it takes says nothing about the right signature.
    genuine = hmac.compare_digest(expected.encode(), header.replace(" ", "").encode())
    return genuine and abs(time.time() - int(timestamp)) <= tolerance_s


def _add(url: str, events: Sequence[WebhookEvent | str], description: str) -> Call[NewWebhook]:
    return post(_LIST, NewWebhook, {"url": url, "events": [str(e) for e in events], "description": description})


def _path(webhook_id: UUID | str) -> str:
    return f"{_LIST}/{segment(webhook_id, 'webhook')}"


def _remove(webhook_id: UUID | str) -> Call[None]:
    return Call("DELETE", _path(webhook_id), lambda _: None)


def _deliveries(webhook_id: UUID | str, state: DeliveryState | str | None) -> Call[Page[DeliveryRecord]]:
    return walk(f"{_path(webhook_id)}/deliveries", DeliveryRecord, state=state)


class Webhooks:
    """Webhooks of the project."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def add(
        self, url: str, events: Sequence[WebhookEvent | str] = SUBSCRIBABLE, *, description: str = ""
    ) -> NewWebhook:
        """Make a webhook; what is returned is the only place where its secret can be read."""
        return self._transport.send(_add(url, events, description))

    def get(self, webhook_id: UUID | str) -> WebhookRecord:
        """Return a webhook."""
        return self._transport.send(get(_path(webhook_id), WebhookRecord))

    def list(self) -> Iterator[WebhookRecord]:
        """Yield webhooks, newest first."""
        return self._transport.items(walk(_LIST, WebhookRecord))

    def remove(self, webhook_id: UUID | str) -> None:
        """Forget a webhook, and what was still to be sent to it."""
        self._transport.send(_remove(webhook_id))

    def test(self, webhook_id: UUID | str) -> DeliveryRecord:
        """Have a test event sent within a second or so."""
        return self._transport.send(post(f"{_path(webhook_id)}:test", DeliveryRecord))

    def deliveries(
        self, webhook_id: UUID | str, *, state: DeliveryState | str | None = None
    ) -> Iterator[DeliveryRecord]:
        """Yield what was and is to be sent, newest first."""
        return self._transport.items(_deliveries(webhook_id, state))


class AsyncWebhooks:
    """Webhooks of the project."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def add(
        self, url: str, events: Sequence[WebhookEvent | str] = SUBSCRIBABLE, *, description: str = ""
    ) -> NewWebhook:
        """Make a webhook; what is returned is the only place where its secret can be read."""
        return await self._transport.send(_add(url, events, description))

    async def get(self, webhook_id: UUID | str) -> WebhookRecord:
        """Return a webhook."""
        return await self._transport.send(get(_path(webhook_id), WebhookRecord))

    def list(self) -> AsyncIterator[WebhookRecord]:
        """Yield webhooks, newest first."""
        return self._transport.items(walk(_LIST, WebhookRecord))

    async def remove(self, webhook_id: UUID | str) -> None:
        """Forget a webhook, and what was still to be sent to it."""
        await self._transport.send(_remove(webhook_id))

    async def test(self, webhook_id: UUID | str) -> DeliveryRecord:
        """Have a test event sent within a second or so."""
        return await self._transport.send(post(f"{_path(webhook_id)}:test", DeliveryRecord))

    def deliveries(
        self, webhook_id: UUID | str, *, state: DeliveryState | str | None = None
    ) -> AsyncIterator[DeliveryRecord]:
        """Yield what was and is to be sent, newest first."""
        return self._transport.items(_deliveries(webhook_id, state))
