"""Routes for webhooks: create, list, delete and test them, and read their deliveries."""

from typing import Annotated
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, Path, Query, Response

from service.dependencies import AppStateDep, Cursor, Limit, StoresDep
from service.principal import NeedsAdmin
from service.strict_json import StrictRoute
from speciate.domain.errors import invalid_field
from speciate.domain.webhook import DeliveryState, Webhook
from speciate.egress.transport import check_url
from speciate.schema.base import Page
from speciate.schema.webhooks import DeliveryRecord, NewWebhook, WebhookRecord

# Only admins see webhooks: the URL of a chat service is a secret itself.
router = APIRouter(prefix="/v1/webhooks", tags=["webhooks"], route_class=StrictRoute, dependencies=[NeedsAdmin])

WebhookId = Annotated[UUID, Path(description="Id of the webhook. A malformed id gives 422.")]


@router.get("")
def list_webhooks(stores: StoresDep, limit: Limit = 100, cursor: Cursor = None) -> Page[WebhookRecord]:
    """List the webhooks of the project, newest first."""
    return stores.webhooks.list(limit=limit, cursor=cursor)


@router.post("", status_code=201)
async def add_webhook(body: Webhook, app_state: AppStateDep, stores: StoresDep, response: Response) -> NewWebhook:
    """Create a webhook. Its secret appears only in this response."""
    # Name resolution may be slow, so it runs in the threads reserved for policy endpoints.
    reason = await to_thread.run_sync(check_url, body.url, app_state.settings.network, limiter=app_state.pings)
    if reason is not None:
        raise invalid_field("The webhook", "url", reason)
    created = await to_thread.run_sync(stores.webhooks.add, body)
    response.headers["Location"] = f"/v1/webhooks/{created.id}"
    return created


@router.post("/{webhook_id}:test", status_code=202)
def test_webhook(webhook_id: WebhookId, stores: StoresDep) -> DeliveryRecord:
    """Queue a test event, which is sent within about a second. Its outcome appears in the deliveries."""
    return stores.webhooks.test(webhook_id)


@router.get("/{webhook_id}")
def get_webhook(webhook_id: WebhookId, stores: StoresDep) -> WebhookRecord:
    """Return a webhook."""
    return stores.webhooks.get(webhook_id)


@router.delete("/{webhook_id}", status_code=204)
def remove_webhook(webhook_id: WebhookId, stores: StoresDep) -> None:
    """Delete a webhook and its pending deliveries."""
    stores.webhooks.remove(webhook_id)


@router.get("/{webhook_id}/deliveries")
def list_webhook_deliveries(
    webhook_id: WebhookId,
    stores: StoresDep,
    state: Annotated[DeliveryState | None, Query(description="Limit to a state.")] = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Page[DeliveryRecord]:
    """List pending and finished deliveries, newest first. Finished deliveries are kept for thirty days."""
    return stores.webhooks.deliveries(webhook_id, state=state, limit=limit, cursor=cursor)
