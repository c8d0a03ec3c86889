"""Routes of campaigns: declare, list, read and steer them, and their decisions."""

from fastapi import APIRouter, Response

from service.api.declarations import add_declaration_routes
from service.api.schemas import IdempotencyKey, NameInPath
from service.dependencies import Cursor, Limit, StoresDep
from service.strict_json import StrictRoute
from speciate.domain.campaign import Campaign
from speciate.runs.declarations import pin_campaign
from speciate.schema.base import Page
from speciate.schema.declarations import CampaignRecord, SliceRecord

router = APIRouter(prefix="/v1/campaigns", tags=["campaigns"], route_class=StrictRoute)


add_declaration_routes(router, CampaignRecord, lambda stores: stores.campaigns, "campaign")


@router.post("", status_code=202)
def create_campaign(
    body: Campaign, stores: StoresDep, response: Response, idempotency_key: IdempotencyKey = None
) -> CampaignRecord:
    """Declare a campaign. It starts at once and is immutable; names are pinned to versions."""
    if (declared_id := stores.campaigns.earlier(idempotency_key, body.digest)) is None:
        pinned = pin_campaign(body, stores.catalog)
        declared_id, _ = stores.campaigns.create(pinned, request_digest=body.digest, idempotency_key=idempotency_key)
    response.headers["Location"] = f"/v1/campaigns/{declared_id}"
    return stores.campaigns.get(declared_id)


@router.get("/{name}/slices")
def campaign_slices(
    name: NameInPath, stores: StoresDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[SliceRecord]:
    """List the decisions of a campaign, newest first: evaluations granted, evidence and result."""
    return stores.campaigns.decisions(stores.campaigns.get(name).id, limit=limit, cursor=cursor)
