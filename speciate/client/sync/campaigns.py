"""Client group for campaigns.

Generated from ``aio/campaigns.py`` by ``make client``: do not edit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID, uuid4

from speciate.client.calls import LONG_TIMEOUT_S, get, get_page, path_segment, post
from speciate.client.sync.transport import ResourceClient
from speciate.domain.campaign import Campaign
from speciate.domain.declaration import DeclarationState
from speciate.ports.records.declarations import CampaignRecord, SliceRecord

_CAMPAIGNS: Final = "/v1/campaigns"


class CampaignsClient(ResourceClient):
    """Searches of many problems that share one budget."""

    def create(
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
        return self._transport.send(
            post(_CAMPAIGNS, CampaignRecord, values, timeout_s=LONG_TIMEOUT_S, idempotency_key=key)
        )

    def list(self, state: DeclarationState | str | None = None) -> Iterator[CampaignRecord]:
        """Yield campaigns without their problems, newest first."""
        return self._transport.items(get_page(_CAMPAIGNS, CampaignRecord, state=state))

    def get(self, name: str | UUID) -> CampaignRecord:
        """Return a campaign by id or name, with the progress of each problem."""
        return self._transport.send(get(_path(name), CampaignRecord))

    def slices(self, name: str | UUID) -> Iterator[SliceRecord]:
        """Yield the slices it granted, newest first."""
        return self._transport.items(get_page(f"{_path(name)}/slices", SliceRecord))

    def pause(self, name: str | UUID, reason: str | None = None) -> CampaignRecord:
        """Grant no more evaluations and pause running runs."""
        return self._steer(name, "pause", reason)

    def resume(self, name: str | UUID) -> CampaignRecord:
        """Resume a paused campaign."""
        return self._steer(name, "resume")

    def cancel(self, name: str | UUID, reason: str | None = None) -> CampaignRecord:
        """Cancel the campaign and its runs. Committed results stay."""
        return self._steer(name, "cancel", reason)

    def _steer(self, name: str | UUID, action: str, reason: str | None = None) -> CampaignRecord:
        body = None if reason is None else {"reason": reason}
        return self._transport.send(post(f"{_path(name)}:{action}", CampaignRecord, body))


def _path(name: str | UUID) -> str:
    return f"{_CAMPAIGNS}/{path_segment(name, 'campaign')}"
