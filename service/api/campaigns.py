"""Campaigns: declaring, steering and reading searches of many problems that share one budget."""

from __future__ import annotations

from fastapi import APIRouter, Response

from service.api.runs import IdempotencyKey
from service.api.schemas import NameInPath, SteeringRequest
from service.dependencies import Cursor, Limit, StoresDep
from service.strict_json import StrictRoute
from speciate.domain.campaign import Campaign
from speciate.domain.declaration import DeclarationState
from speciate.policies import can_advise
from speciate.ports.records.base import Page
from speciate.ports.records.declarations import CampaignRecord, SliceRecord
from speciate.runs.declarations import pin_campaign

router = APIRouter(prefix="/v1/campaigns", tags=["campaigns"], route_class=StrictRoute)


# Before the routes that read: ``{name}`` would otherwise take "…:pause" for a name.
@router.post("/{name}:pause")
def pause_campaign(name: NameInPath, stores: StoresDep, body: SteeringRequest | None = None) -> CampaignRecord:
    """Hand out no more evaluations, and pause the runs under way within a second or so."""
    return _move(stores, name, DeclarationState.PAUSED, body)


@router.post("/{name}:resume")
def resume_campaign(name: NameInPath, stores: StoresDep) -> CampaignRecord:
    """Go on."""
    return _move(stores, name, DeclarationState.RUNNING, None)


@router.post("/{name}:cancel")
def cancel_campaign(name: NameInPath, stores: StoresDep, body: SteeringRequest | None = None) -> CampaignRecord:
    """End it; its runs are cancelled, what was committed stays."""
    return _move(stores, name, DeclarationState.CANCELLED, body)


@router.get("")
def list_campaigns(
    stores: StoresDep, state: DeclarationState | None = None, limit: Limit = 100, cursor: Cursor = None
) -> Page[CampaignRecord]:
    """List campaigns without their problems, newest first."""
    return stores.campaigns.list(state=state, limit=limit, cursor=cursor)


@router.post("", status_code=202)
def create_campaign(
    body: Campaign, stores: StoresDep, response: Response, idempotency_key: IdempotencyKey = None
) -> CampaignRecord:
    """Declare a campaign; it begins at once and can never be declared otherwise. Names are pinned to versions."""
    campaign_id, _ = stores.campaigns.create(
        pin_campaign(body, stores.catalog, can_advise), request_digest=body.digest, idempotency_key=idempotency_key
    )
    response.headers["Location"] = f"/v1/campaigns/{campaign_id}"
    return stores.campaigns.get(campaign_id)


@router.get("/{name}")
def get_campaign(name: NameInPath, stores: StoresDep) -> CampaignRecord:
    """Read a campaign with its progress, problem by problem."""
    return stores.campaigns.get(name)


@router.get("/{name}/slices")
def campaign_slices(
    name: NameInPath, stores: StoresDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[SliceRecord]:
    """List its decisions, newest first: who was given evaluations, why, and what came of it."""
    return stores.campaigns.decisions(stores.campaigns.get(name).id, limit=limit, cursor=cursor)


def _move(stores: StoresDep, name: str, goal: DeclarationState, body: SteeringRequest | None) -> CampaignRecord:
    record = stores.campaigns.get(name)
    stores.campaigns.move(record.id, goal, body.reason if body else None)
    return stores.campaigns.get(record.id)
