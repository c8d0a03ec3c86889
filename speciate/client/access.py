"""Tokens, projects and the audit log of both clients: the calls, and what waits for their answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from typing import Final
from uuid import UUID

from speciate.client.async_transport import AsyncTransport
from speciate.client.calls import Call, get, post, segment, walk
from speciate.client.transport import Transport
from speciate.domain.access import Quota, Scope
from speciate.ports.records.base import Page
from speciate.ports.records.projects import (
    AuditRecord,
    NewToken,
    PrincipalRecord,
    ProjectRecord,
    ProjectUsage,
    TokenRecord,
)

_TOKENS: Final = "/v1/tokens"
_PROJECTS: Final = "/v1/projects"


def whoami() -> Call[PrincipalRecord]:
    """Ask whom the service takes the sender for."""
    return get("/v1/whoami", PrincipalRecord)


def audit(everything: bool) -> Call[Page[AuditRecord]]:
    """Read the audit log, newest first."""
    return walk("/v1/audit", AuditRecord, everything=everything)


def _create_token(name: str, scope: Scope | str, expires_at: datetime | None) -> Call[NewToken]:
    end = None if expires_at is None else expires_at.isoformat()
    return post(_TOKENS, NewToken, {"name": name, "scope": str(scope), "expires_at": end})


def _revoke_token(token_id: str | UUID) -> Call[TokenRecord]:
    return post(f"{_TOKENS}/{segment(token_id, 'token')}:revoke", TokenRecord)


def _create_project(slug: str, title: str, quota: Quota) -> Call[ProjectRecord]:
    return post(_PROJECTS, ProjectRecord, {"slug": slug, "title": title, "quota": quota.model_dump()})


def _project(name: str) -> Call[ProjectUsage]:
    return get(f"{_PROJECTS}/{segment(name, 'project')}", ProjectUsage)


def _limit(name: str, quota: Quota) -> Call[ProjectRecord]:
    limits = quota.model_dump(include=quota.model_fields_set)
    return post(f"{_PROJECTS}/{segment(name, 'project')}:quota", ProjectRecord, limits)


class Tokens:
    """Tokens of the project."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, name: str, scope: Scope | str = Scope.READ, *, expires_at: datetime | None = None) -> NewToken:
        """Make a token; what is returned is the only place where it can be read."""
        return self._transport.send(_create_token(name, scope, expires_at))

    def list(self) -> Iterator[TokenRecord]:
        """Yield tokens, newest first, revoked ones too."""
        return self._transport.items(walk(_TOKENS, TokenRecord))

    def revoke(self, token_id: str | UUID) -> TokenRecord:
        """Revoke a token: the next request with it is refused."""
        return self._transport.send(_revoke_token(token_id))


class Projects:
    """Projects and their quotas."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(self, slug: str, *, title: str = "", quota: Quota | None = None) -> ProjectRecord:
        """Make a project."""
        return self._transport.send(_create_project(slug, title, quota or Quota()))

    def get(self, name: str) -> ProjectUsage:
        """Return a project with what counts towards its quotas."""
        return self._transport.send(_project(name))

    def list(self) -> Iterator[ProjectRecord]:
        """Yield projects, the oldest first."""
        return self._transport.items(walk(_PROJECTS, ProjectRecord))

    def limit(self, name: str, quota: Quota) -> ProjectRecord:
        """Set those limits that ``quota`` was made with; None is no limit."""
        return self._transport.send(_limit(name, quota))


class AsyncTokens:
    """Tokens of the project."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, name: str, scope: Scope | str = Scope.READ, *, expires_at: datetime | None = None
    ) -> NewToken:
        """Make a token; what is returned is the only place where it can be read."""
        return await self._transport.send(_create_token(name, scope, expires_at))

    def list(self) -> AsyncIterator[TokenRecord]:
        """Yield tokens, newest first, revoked ones too."""
        return self._transport.items(walk(_TOKENS, TokenRecord))

    async def revoke(self, token_id: str | UUID) -> TokenRecord:
        """Revoke a token: the next request with it is refused."""
        return await self._transport.send(_revoke_token(token_id))


class AsyncProjects:
    """Projects and their quotas."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, slug: str, *, title: str = "", quota: Quota | None = None) -> ProjectRecord:
        """Make a project."""
        return await self._transport.send(_create_project(slug, title, quota or Quota()))

    async def get(self, name: str) -> ProjectUsage:
        """Return a project with what counts towards its quotas."""
        return await self._transport.send(_project(name))

    def list(self) -> AsyncIterator[ProjectRecord]:
        """Yield projects, the oldest first."""
        return self._transport.items(walk(_PROJECTS, ProjectRecord))

    async def limit(self, name: str, quota: Quota) -> ProjectRecord:
        """Set those limits that ``quota`` was made with; None is no limit."""
        return await self._transport.send(_limit(name, quota))
