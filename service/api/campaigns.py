"""Routes of campaigns: declare, list, read and steer them, and their decisions."""

from fastapi import APIRouter

from service.api.schemas import NameInPath
from service.api.shared_routes import add_declaration_routes
from service.dependencies import Cursor, Limit, StoresDep
from service.strict_json import StrictRoute
from speciate.domain.campaign import Campaign
from speciate.runs.declarations import pin_campaign
from speciate.schema.base import Page
from speciate.schema.declarations import CampaignRecord, SliceRecord

router = APIRouter(prefix="/v1/campaigns", tags=["campaigns"], route_class=StrictRoute)


add_declaration_routes(router, CampaignRecord, lambda stores: stores.campaigns, "campaign", Campaign, pin_campaign)


@router.get("/{name}/slices")
def campaign_slices(
    name: NameInPath, stores: StoresDep, limit: Limit = 100, cursor: Cursor = None
) -> Page[SliceRecord]:
    """List the decisions of a campaign, newest first: evaluations granted, evidence and result."""
    return stores.campaigns.decisions(stores.campaigns.get(name).id, limit=limit, cursor=cursor)
