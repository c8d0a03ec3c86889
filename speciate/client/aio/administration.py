"""Client groups for tokens, projects and webhooks."""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from speciate.client.aio.transport import AsyncResourceClient
from speciate.client.calls import ApiCall, get, get_page, path_segment, post
from speciate.domain.access import Quota, Scope
from speciate.domain.webhook import SUBSCRIBABLE, DeliveryState, WebhookEvent
from speciate.schema.projects import NewToken, ProjectRecord, ProjectUsage, TokenRecord
from speciate.schema.webhooks import DeliveryRecord, NewWebhook, WebhookRecord

_TOKENS: Final = "/v1/tokens"
_PROJECTS: Final = "/v1/projects"
_WEBHOOKS: Final = "/v1/webhooks"


class AsyncTokensClient(AsyncResourceClient):
    async def create(
        self, name: str, scope: Scope | str = Scope.READ, *, expires_at: datetime | None = None
    ) -> NewToken:
        """Create a token. Its secret appears only in the returned record."""
        end = None if expires_at is None else expires_at.isoformat()
        body = {"name": name, "scope": str(scope), "expires_at": end}
        return await self._transport.send(post(_TOKENS, NewToken, body))

    def list(self) -> AsyncIterator[TokenRecord]:
        """Yield tokens, newest first, including revoked ones."""
        return self._transport.items(get_page(_TOKENS, TokenRecord))

    async def revoke(self, token_id: str | UUID) -> TokenRecord:
        """Revoke a token. The next request with it is rejected."""
        return await self._transport.send(post(f"{_TOKENS}/{path_segment(token_id, 'token')}:revoke", TokenRecord))


class AsyncProjectsClient(AsyncResourceClient):
    """Projects and their quotas."""

    async def create(self, slug: str, *, title: str = "", quota: Quota | None = None) -> ProjectRecord:
        """Create a project."""
        body = {"slug": slug, "title": title, "quota": (quota or Quota()).model_dump()}
        return await self._transport.send(post(_PROJECTS, ProjectRecord, body))

    async def get(self, name: str) -> ProjectUsage:
        """Return a project with its usage against its quotas."""
        return await self._transport.send(get(f"{_PROJECTS}/{path_segment(name, 'project')}", ProjectUsage))

    def list(self) -> AsyncIterator[ProjectRecord]:
        """Yield projects, oldest first."""
        return self._transport.items(get_page(_PROJECTS, ProjectRecord))

    async def limit(self, name: str, quota: Quota) -> ProjectRecord:
        """Set the limits that ``quota`` was created with. None removes a limit."""
        limits = quota.model_dump(include=quota.model_fields_set)
        call = post(f"{_PROJECTS}/{path_segment(name, 'project')}:quota", ProjectRecord, limits)
        return await self._transport.send(call)


class AsyncWebhooksClient(AsyncResourceClient):
    async def add(
        self, url: str, events: Sequence[WebhookEvent | str] = SUBSCRIBABLE, *, description: str = ""
    ) -> NewWebhook:
        """Create a webhook. Its secret appears only in the returned record."""
        body = {"url": url, "events": [str(event) for event in events], "description": description}
        return await self._transport.send(post(_WEBHOOKS, NewWebhook, body))

    async def get(self, webhook_id: UUID | str) -> WebhookRecord:
        """Return a webhook."""
        return await self._transport.send(get(_webhook(webhook_id), WebhookRecord))

    def list(self) -> AsyncIterator[WebhookRecord]:
        """Yield webhooks, newest first."""
        return self._transport.items(get_page(_WEBHOOKS, WebhookRecord))

    async def remove(self, webhook_id: UUID | str) -> None:
        """Delete a webhook and its pending deliveries."""
        await self._transport.send(ApiCall("DELETE", _webhook(webhook_id), lambda _: None))

    async def test(self, webhook_id: UUID | str) -> DeliveryRecord:
        """Queue a test event, which is sent within about a second."""
        return await self._transport.send(post(f"{_webhook(webhook_id)}:test", DeliveryRecord))

    def deliveries(
        self, webhook_id: UUID | str, *, state: DeliveryState | str | None = None
    ) -> AsyncIterator[DeliveryRecord]:
        """Yield pending and finished deliveries, newest first."""
        return self._transport.items(get_page(f"{_webhook(webhook_id)}/deliveries", DeliveryRecord, state=state))


def _webhook(webhook_id: UUID | str) -> str:
    return f"{_WEBHOOKS}/{path_segment(webhook_id, 'webhook')}"
