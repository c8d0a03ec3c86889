"""Client groups for tokens, projects and webhooks.

Generated from ``aio/administration.py`` by ``make client``: do not edit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from speciate.client.calls import ApiCall, get, get_page, path_segment, post
from speciate.client.sync.transport import ResourceClient
from speciate.domain.access import Quota, Scope
from speciate.domain.webhook import SUBSCRIBABLE, DeliveryState, WebhookEvent
from speciate.schema.projects import NewToken, ProjectRecord, ProjectUsage, TokenRecord
from speciate.schema.webhooks import DeliveryRecord, NewWebhook, WebhookRecord

_TOKENS: Final = "/v1/tokens"
_PROJECTS: Final = "/v1/projects"
_WEBHOOKS: Final = "/v1/webhooks"


class TokensClient(ResourceClient):
    """Tokens of the project."""

    def create(self, name: str, scope: Scope | str = Scope.READ, *, expires_at: datetime | None = None) -> NewToken:
        """Create a token. Its secret appears only in the returned record."""
        end = None if expires_at is None else expires_at.isoformat()
        body = {"name": name, "scope": str(scope), "expires_at": end}
        return self._transport.send(post(_TOKENS, NewToken, body))

    def list(self) -> Iterator[TokenRecord]:
        """Yield tokens, newest first, including revoked ones."""
        return self._transport.items(get_page(_TOKENS, TokenRecord))

    def revoke(self, token_id: str | UUID) -> TokenRecord:
        """Revoke a token. The next request with it is rejected."""
        return self._transport.send(post(f"{_TOKENS}/{path_segment(token_id, 'token')}:revoke", TokenRecord))


class ProjectsClient(ResourceClient):
    """Projects and their quotas."""

    def create(self, slug: str, *, title: str = "", quota: Quota | None = None) -> ProjectRecord:
        """Create a project."""
        body = {"slug": slug, "title": title, "quota": (quota or Quota()).model_dump()}
        return self._transport.send(post(_PROJECTS, ProjectRecord, body))

    def get(self, name: str) -> ProjectUsage:
        """Return a project with its usage against its quotas."""
        return self._transport.send(get(f"{_PROJECTS}/{path_segment(name, 'project')}", ProjectUsage))

    def list(self) -> Iterator[ProjectRecord]:
        """Yield projects, oldest first."""
        return self._transport.items(get_page(_PROJECTS, ProjectRecord))

    def limit(self, name: str, quota: Quota) -> ProjectRecord:
        """Set the limits that ``quota`` was created with. None removes a limit."""
        limits = quota.model_dump(include=quota.model_fields_set)
        return self._transport.send(post(f"{_PROJECTS}/{path_segment(name, 'project')}:quota", ProjectRecord, limits))


class WebhooksClient(ResourceClient):
    """Webhooks of the project."""

    def add(
        self, url: str, events: Sequence[WebhookEvent | str] = SUBSCRIBABLE, *, description: str = ""
    ) -> NewWebhook:
        """Create a webhook. Its secret appears only in the returned record."""
        body = {"url": url, "events": [str(event) for event in events], "description": description}
        return self._transport.send(post(_WEBHOOKS, NewWebhook, body))

    def get(self, webhook_id: UUID | str) -> WebhookRecord:
        """Return a webhook."""
        return self._transport.send(get(_webhook(webhook_id), WebhookRecord))

    def list(self) -> Iterator[WebhookRecord]:
        """Yield webhooks, newest first."""
        return self._transport.items(get_page(_WEBHOOKS, WebhookRecord))

    def remove(self, webhook_id: UUID | str) -> None:
        """Delete a webhook and its pending deliveries."""
        self._transport.send(ApiCall("DELETE", _webhook(webhook_id), lambda _: None))

    def test(self, webhook_id: UUID | str) -> DeliveryRecord:
        """Queue a test event, which is sent within about a second."""
        return self._transport.send(post(f"{_webhook(webhook_id)}:test", DeliveryRecord))

    def deliveries(
        self, webhook_id: UUID | str, *, state: DeliveryState | str | None = None
    ) -> Iterator[DeliveryRecord]:
        """Yield pending and finished deliveries, newest first."""
        return self._transport.items(get_page(f"{_webhook(webhook_id)}/deliveries", DeliveryRecord, state=state))


def _webhook(webhook_id: UUID | str) -> str:
    return f"{_WEBHOOKS}/{path_segment(webhook_id, 'webhook')}"
