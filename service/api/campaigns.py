"""Routes of campaigns: declare, list, read and steer them, and their decisions."""

from __future__ import annotations

from fastapi import APIRouter, Response

from service.api.schemas import DeclarationStateFilter, IdempotencyKey, NameInPath, SteeringRequest
from service.dependencies import Cursor, Limit, StoresDep
from service.strict_json import StrictRoute
from speciate.domain.campaign import Campaign
from speciate.domain.declaration import DeclarationState
from speciate.runs.declarations import pin_campaign
from speciate.schema.base import Page
from speciate.schema.declarations import CampaignRecord, SliceRecord
from speciate.storage.stores import Stores

router = APIRouter(prefix="/v1/campaigns", tags=["campaigns"], route_class=StrictRoute)


@router.post("/{name}:pause")
def pause_campaign(name: NameInPath, stores: StoresDep, body: SteeringRequest | None = None) -> CampaignRecord:
    """Pause a campaign: start no more work, and pause its active runs within about a second."""
    return _move(stores, name, DeclarationState.PAUSED, body.reason if body else None)


@router.post("/{name}:resume")
def resume_campaign(name: NameInPath, stores: StoresDep) -> CampaignRecord:
    """Resume a paused campaign."""
    return _move(stores, name, DeclarationState.RUNNING)


@router.post("/{name}:cancel")
def cancel_campaign(name: NameInPath, stores: StoresDep, body: SteeringRequest | None = None) -> CampaignRecord:
    """Cancel a campaign and its active runs; committed results stay."""
    return _move(stores, name, DeclarationState.CANCELLED, body.reason if body else None)


@router.get("")
def list_campaigns(
    stores: StoresDep, state: DeclarationStateFilter = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[CampaignRecord]:
    """List campaigns, newest first."""
    return stores.campaigns.list(state=state, limit=limit, cursor=cursor)


@router.post("", status_code=202)
def create_campaign(
    body: Campaign, stores: StoresDep, response: Response, idempotency_key: IdempotencyKey = None
) -> CampaignRecord:
    """Declare a campaign. It starts at once and is immutable; names are pinned to versions."""
    pinned = pin_campaign(body, stores.catalog)
    declared_id, _ = stores.campaigns.create(pinned, request_digest=body.digest, idempotency_key=idempotency_key)
    response.headers["Location"] = f"/v1/campaigns/{declared_id}"
    return stores.campaigns.get(declared_id)


@router.get("/{name}")
def get_campaign(name: NameInPath, stores: StoresDep) -> CampaignRecord:
    """Return a campaign with its progress."""
    return stores.campaigns.get(name)


@router.get("/{name}/slices")
def campaign_slices(
    name: NameInPath, stores: StoresDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[SliceRecord]:
    """List the decisions of a campaign, newest first: evaluations granted, evidence and result."""
    return stores.campaigns.decisions(stores.campaigns.get(name).id, limit=limit, cursor=cursor)


def _move(stores: Stores, name: str, goal: DeclarationState, reason: str | None = None) -> CampaignRecord:
    record = stores.campaigns.get(name)
    stores.campaigns.move(record.id, goal, reason)
    return stores.campaigns.get(record.id)
