"""Campaigns of both clients: the calls, and what waits for their answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final
from uuid import UUID, uuid4

from speciate.client.async_transport import AsyncTransport
from speciate.client.calls import Call, get, post, segment, walk
from speciate.client.tournaments import TIMEOUT_S
from speciate.client.transport import Transport
from speciate.domain.campaign import Campaign
from speciate.domain.declaration import DeclarationState
from speciate.ports.records.base import Page
from speciate.ports.records.declarations import CampaignRecord, SliceRecord

_LIST: Final = "/v1/campaigns"


def _create(declaration: Campaign | Mapping[str, Any], key: str | None) -> Call[CampaignRecord]:
    values = declaration.model_dump(mode="json") if isinstance(declaration, Campaign) else dict(declaration)
    call = post(_LIST, CampaignRecord, values, timeout_s=TIMEOUT_S)
    return replace(call, idempotency_key=key or str(uuid4()))


def _path(name: str | UUID) -> str:
    return f"{_LIST}/{segment(name, 'campaign')}"


def _all(state: DeclarationState | str | None) -> Call[Page[CampaignRecord]]:
    return walk(_LIST, CampaignRecord, state=state)


def _slices(name: str | UUID) -> Call[Page[SliceRecord]]:
    return walk(f"{_path(name)}/slices", SliceRecord)


def _steer(name: str | UUID, action: str, reason: str | None) -> Call[CampaignRecord]:
    return post(f"{_path(name)}:{action}", CampaignRecord, None if reason is None else {"reason": reason})


class Campaigns:
    """Searches of many problems that share one budget."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def create(
        self, declaration: Campaign | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> CampaignRecord:
        """Declare a campaign; it begins at once, and the same declaration again is the same campaign.

        Raises:
            InvalidInputError: The declaration is not valid; the flaws say where.
            NotFoundError: A problem, set or policy is unknown.
            ConflictError: The name is taken, or the key was used for another request.
        """
        return self._transport.send(_create(declaration, idempotency_key))

    def list(self, state: DeclarationState | str | None = None) -> Iterator[CampaignRecord]:
        """Yield campaigns without their problems, newest first."""
        return self._transport.items(_all(state))

    def get(self, name: str | UUID) -> CampaignRecord:
        """Return a campaign by id or name, with how every problem stands."""
        return self._transport.send(get(_path(name), CampaignRecord))

    def slices(self, name: str | UUID) -> Iterator[SliceRecord]:
        """Yield its decisions, newest first."""
        return self._transport.items(_slices(name))

    def pause(self, name: str | UUID, reason: str | None = None) -> CampaignRecord:
        """Hand out no more evaluations and pause the runs under way."""
        return self._transport.send(_steer(name, "pause", reason))

    def resume(self, name: str | UUID) -> CampaignRecord:
        """Go on."""
        return self._transport.send(_steer(name, "resume", None))

    def cancel(self, name: str | UUID, reason: str | None = None) -> CampaignRecord:
        """End it."""
        return self._transport.send(_steer(name, "cancel", reason))


class AsyncCampaigns:
    """The same for asyncio."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(
        self, declaration: Campaign | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> CampaignRecord:
        """Declare a campaign; see ``Campaigns.create``."""
        return await self._transport.send(_create(declaration, idempotency_key))

    def list(self, state: DeclarationState | str | None = None) -> AsyncIterator[CampaignRecord]:
        """Yield campaigns without their problems, newest first."""
        return self._transport.items(_all(state))

    async def get(self, name: str | UUID) -> CampaignRecord:
        """Return a campaign by id or name, with how every problem stands."""
        return await self._transport.send(get(_path(name), CampaignRecord))

    def slices(self, name: str | UUID) -> AsyncIterator[SliceRecord]:
        """Yield its decisions, newest first."""
        return self._transport.items(_slices(name))

    async def pause(self, name: str | UUID, reason: str | None = None) -> CampaignRecord:
        """Hand out no more evaluations and pause the runs under way."""
        return await self._transport.send(_steer(name, "pause", reason))

    async def resume(self, name: str | UUID) -> CampaignRecord:
        """Go on."""
        return await self._transport.send(_steer(name, "resume", None))

    async def cancel(self, name: str | UUID, reason: str | None = None) -> CampaignRecord:
        """End it."""
        return await self._transport.send(_steer(name, "cancel", reason))
