"""Form that declares a campaign."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import number_fields, parse_number, read_strategy, strategy_context
from service.dashboard.forms import FormDep, FormErrors, form_errors, require_confirmation
from service.dashboard.learning_fields import learning_fields, read_learning
from service.dashboard.routes.declarations import form_page, idempotency_key
from speciate.domain.campaign import AllocationMode, Campaign
from speciate.domain.errors import SpeciateError
from speciate.domain.learning import LearningScope
from speciate.runs.declarations import pin_campaign

router = APIRouter(include_in_schema=False, prefix="/campaigns")

_COUNTS: Final = {
    "evaluations": "Budget of all problems together.",
    "slice": "Evaluations granted to a problem at a time; best a multiple of the batch.",
    "parallel": "Problems with an open slice at the same time.",
    "batch": "Candidates per batch.",
    "samples_per_prompt": "Completions per prompt.",
    "seed": "Seed of every run and of tie-breaking.",
}
_TEXTS: Final = ("title", "policy", "mutator", "mode", "learning_scope")


@router.get("/new")
def show_form(request: Request, dashboard: DashboardDep) -> Response:
    """Show the form, filled in from the query."""
    return _page(request, dashboard, dict(request.query_params), None)


@router.post("/new")
def update_form(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    """Show the form with the options of another strategy; its problems may not fit in a URL."""
    return _page(request, dashboard, form.fields, None)


@router.post("")
def declare_campaign(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    """Declare the campaign and redirect to its page, or show the form with the errors."""
    values, store = form.fields, dashboard.stores.campaigns
    try:
        body = _read_form(values)
        declared = Campaign.model_validate(body)
        pinned = pin_campaign(declared, dashboard.stores.catalog)
        require_confirmation(values, body, pinned.doubt)
        declared_id, _ = store.create(pinned, request_digest=declared.digest, idempotency_key=idempotency_key(values))
    except (SpeciateError, ValidationError) as error:
        return _page(request, dashboard, values, form_errors(error))
    return RedirectResponse(f"/campaigns/{store.get(declared_id).slug}", 303)


def _page(
    request: Request, dashboard: DashboardContext, values: Mapping[str, str], errors: FormErrors | None
) -> Response:
    learning = learning_fields(values)
    return form_page(
        request,
        dashboard,
        "campaign",
        values,
        errors,
        counts=number_fields(Campaign, _COUNTS, values),
        modes=[mode.value for mode in AllocationMode],
        learning=learning,
        learns=any(field.changed for field in learning),
        scopes=[scope.value for scope in LearningScope],
        **strategy_context(values),
    )


def _read_form(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of a campaign, unvalidated."""
    text = {name: value.strip() for name, value in values.items()}
    # A default is left out, because it depends on other fields: a shared learner serves one problem at a time.
    counts = [field.name for field in number_fields(Campaign, _COUNTS, values) if field.changed]
    return {
        "slug": text.get("slug", ""),
        "problems": text.get("problems", "").split(),
        **read_strategy(values),
        "learning": read_learning(values),
        **{name: text[name] for name in _TEXTS if text.get(name)},
        **{name: parse_number("integer", text[name]) for name in counts if text.get(name)},
    }
