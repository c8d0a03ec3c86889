"""Webhooks of a project: making, listing, removing and testing them, and what became of what was sent."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Path, Response

from service.dependencies import AppStateDep, Cursor, Limit, StoresDep
from service.principal import NeedsAdmin
from service.strict_json import StrictRoute
from speciate.domain.errors import FieldError, InvalidInputError
from speciate.domain.webhook import DeliveryState, Webhook
from speciate.egress.transport import check_url
from speciate.ports.records.base import Page
from speciate.ports.records.webhooks import DeliveryRecord, NewWebhook, WebhookRecord

# An address may be a secret itself, as with chat services.
router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=StrictRoute, dependencies=[NeedsAdmin])

WebhookId = Annotated[UUID, Path(description="id of the webhook; 422 when it is no UUID")]


@router.get("")
def list_webhooks(stores: StoresDep, limit: Limit = 100, cursor: Cursor = None) -> Page[WebhookRecord]:
    """List the project's webhooks, newest first."""
    return stores.webhooks.list(limit=limit, cursor=cursor)


@router.post("", status_code=201)
async def add_webhook(body: Webhook, app_state: AppStateDep, stores: StoresDep, response: Response) -> NewWebhook:
    """Make a webhook. The answer is the only place where its secret can be read."""
    # A slow name server may hold those threads that wait for policies, not those that answer requests.
    wrong = await to_thread.run_sync(check_url, body.url, app_state.settings.network, limiter=app_state.pings)
    if wrong is not None:
        flaw = FieldError(wrong, where="url")
        raise InvalidInputError(f"The webhook is not valid: {flaw}", flaws=(flaw,))
    made = await to_thread.run_sync(stores.webhooks.add, body)
    response.headers["Location"] = f"/v1/webhooks/{made.id}"
    return made


# Before the routes that read: ``{webhook_id}`` would otherwise take "…:test" for an id.
@router.post("/{webhook_id}:test", status_code=202)
def test_webhook(webhook_id: WebhookId, stores: StoresDep) -> DeliveryRecord:
    """Send a test event, within a second or so; the list of deliveries says what came of it."""
    return stores.webhooks.test(webhook_id)


@router.get("/{webhook_id}")
def get_webhook(webhook_id: WebhookId, stores: StoresDep) -> WebhookRecord:
    """Read a webhook."""
    return stores.webhooks.get(webhook_id)


@router.delete("/{webhook_id}", status_code=204)
def remove_webhook(webhook_id: WebhookId, stores: StoresDep) -> None:
    """Forget a webhook, and what was still to be sent to it."""
    stores.webhooks.remove(webhook_id)


@router.get("/{webhook_id}/deliveries")
def webhook_deliveries(
    webhook_id: WebhookId,
    stores: StoresDep,
    state: DeliveryState | None = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[DeliveryRecord]:
    """List what was and is to be sent, newest first; what ended is kept for thirty days."""
    return stores.webhooks.deliveries(webhook_id, state=state, limit=limit, cursor=cursor)
