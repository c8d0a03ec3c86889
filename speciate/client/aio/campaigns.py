"""Client group for campaigns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final
from uuid import UUID, uuid4

from speciate.client.aio.transport import AsyncResourceClient
from speciate.client.calls import LONG_TIMEOUT_S, get, get_page, path_segment, post
from speciate.domain.campaign import Campaign
from speciate.domain.declaration import DeclarationState
from speciate.ports.records.declarations import CampaignRecord, SliceRecord

_CAMPAIGNS: Final = "/v1/campaigns"


class AsyncCampaignsClient(AsyncResourceClient):
    """Searches of many problems that share one budget."""

    async def create(
        self, declaration: Campaign | Mapping[str, Any], *, idempotency_key: str | None = None
    ) -> CampaignRecord:
        """Declare and start a campaign. Declaring the same again returns the same campaign.

        Raises:
            InvalidInputError: The declaration is not valid. The error lists each invalid field.
            NotFoundError: A problem, problem set or policy does not exist.
            ConflictError: The name is taken, or the key was used for another request.
        """
        values = declaration.model_dump(mode="json") if isinstance(declaration, Campaign) else dict(declaration)
        key = idempotency_key or str(uuid4())
        return await self._transport.send(
            post(_CAMPAIGNS, CampaignRecord, values, timeout_s=LONG_TIMEOUT_S, idempotency_key=key)
        )

    def list(self, state: DeclarationState | str | None = None) -> AsyncIterator[CampaignRecord]:
        """Yield campaigns without their problems, newest first."""
        return self._transport.items(get_page(_CAMPAIGNS, CampaignRecord, state=state))

    async def get(self, name: str | UUID) -> CampaignRecord:
        """Return a campaign by id or name, with the progress of each problem."""
        return await self._transport.send(get(_path(name), CampaignRecord))

    def slices(self, name: str | UUID) -> AsyncIterator[SliceRecord]:
        """Yield the slices it granted, newest first."""
        return self._transport.items(get_page(f"{_path(name)}/slices", SliceRecord))

    async def pause(self, name: str | UUID, reason: str | None = None) -> CampaignRecord:
        """Grant no more evaluations and pause running runs."""
        return await self._steer(name, "pause", reason)

    async def resume(self, name: str | UUID) -> CampaignRecord:
        """Resume a paused campaign."""
        return await self._steer(name, "resume")

    async def cancel(self, name: str | UUID, reason: str | None = None) -> CampaignRecord:
        """Cancel the campaign and its runs. Committed results stay."""
        return await self._steer(name, "cancel", reason)

    async def _steer(self, name: str | UUID, action: str, reason: str | None = None) -> CampaignRecord:
        body = None if reason is None else {"reason": reason}
        return await self._transport.send(post(f"{_path(name)}:{action}", CampaignRecord, body))


def _path(name: str | UUID) -> str:
    return f"{_CAMPAIGNS}/{path_segment(name, 'campaign')}"
