"""Pages of campaigns: the form, the progress of the problems, and decisions with their results."""

from collections.abc import Sequence
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.dashboard.charts import Chart
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.figures.campaign import allocation_chart, campaign_progress_chart
from service.dashboard.figures.learning import LEARNING_CHARTS, learning_chart
from service.dashboard.forms import FormDep, idempotency_key, require_confirmation
from service.dashboard.model_form import PROBLEMS_NOTE, ModelForm, add_form_routes, strategies
from service.dashboard.routes.declarations import add_declaration_routes
from speciate.domain.campaign import MAX_SLICES, Campaign, waits_for_grant
from speciate.domain.errors import SpeciateError
from speciate.runs.declarations import pin_campaign
from speciate.schema.declarations import CampaignRecord

router = APIRouter(include_in_schema=False, prefix="/campaigns")

_MAX_DECISIONS: Final = 40
_MAX_PROBLEMS: Final = 300

FORM: Final = ModelForm(
    path="/campaigns",
    title="Declare a campaign",
    button="Start campaign",
    lead="Many problems, one policy, one budget, spent where a new target is likeliest. The campaign starts at once.",
    models=(Campaign,),
    first=("slug", "policy", "mutator", "evaluations", "problems"),
    notes={"problems": PROBLEMS_NOTE},
    plug_ins=strategies(Campaign.model_fields["strategy"].default),
)
add_form_routes(router, FORM)


@router.post("")
def declare_campaign(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    values, store = form.fields, dashboard.stores.campaigns
    try:
        body = FORM.read(values)
        declared = Campaign.model_validate(body)
        pinned = pin_campaign(declared, dashboard.stores.catalog)
        require_confirmation(values, body, pinned.doubt)
        key = idempotency_key(values, declared.digest)
        declared_id, _ = store.create(pinned, request_digest=declared.digest, idempotency_key=key)
    except (SpeciateError, ValidationError) as error:
        return FORM.refuse(request, dashboard, values, error)
    return RedirectResponse(f"/campaigns/{store.get(declared_id).slug}", 303)


def _revision(record: CampaignRecord) -> str:
    return f"{record.state}-{record.slices}-{record.spent}-{record.unlocked}"


def _context(dashboard: DashboardContext, record: CampaignRecord, _: str) -> dict[str, Any]:
    problems = sorted(record.problems, key=lambda p: (-p.chance, -p.spent, p.problem))
    return {
        "problems": problems[:_MAX_PROBLEMS],
        "waits": waits_for_grant,
        "targets": sum(len(problem.reached) for problem in record.problems),
        "decisions": dashboard.stores.campaigns.decisions(record.id, limit=_MAX_DECISIONS).items,
    }


def _charts(dashboard: DashboardContext, record: CampaignRecord, _: bool) -> Sequence[Chart]:
    slices = dashboard.stores.campaigns.decisions(record.id, limit=MAX_SLICES).items[::-1]
    charts = [allocation_chart(slices), campaign_progress_chart(slices)]
    if record.declaration.shares_learner:
        steps = dashboard.stores.campaigns.learning_steps(record.id)
        charts += [learning_chart(name, steps) for name in LEARNING_CHARTS]
    return charts


add_declaration_routes(router, "campaign", lambda stores: stores.campaigns, _revision, _context, _charts)
