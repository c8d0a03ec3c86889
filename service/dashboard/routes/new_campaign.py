"""Declaring a campaign from a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import Field, parse_number, read_strategy, strategy_context
from service.dashboard.forms import FormDep, FormErrors, form_errors
from service.dashboard.pages import page
from speciate.domain.campaign import AllocationMode, Campaign
from speciate.domain.errors import SpeciateError
from speciate.runs.declarations import pin_campaign

router = APIRouter(include_in_schema=False, prefix="/campaigns")

_COUNTS: Final = {
    "evaluations": "of all problems together",
    "slice": "evaluations that a problem is given at a time; best a multiple of the batch",
    "parallel": "problems that are given some at once",
    "batch": "answers asked for at once",
    "samples_per_prompt": "answers drawn for one prompt",
    "seed": "of every run, and of the order among equals",
}
_TEXTS: Final = ("title", "policy", "mutator", "mode")


@router.get("/new")
def show_form(request: Request, dashboard: DashboardDep) -> Response:
    """Show the form, filled in as the address says."""
    return _form(request, dashboard, dict(request.query_params), None)


@router.post("/new")
def show_form_again(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    """Show the form with the options of another strategy; ten thousand names of problems do not fit an address."""
    return _form(request, dashboard, form.fields, None)


@router.post("")
def declare(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    """Declare it and go to its page, or show the form again with what is wrong."""
    values = form.fields
    try:
        declared = Campaign.model_validate(_declaration(values))
        campaign_id, _ = dashboard.stores.campaigns.create(
            pin_campaign(declared, dashboard.stores.catalog),
            request_digest=declared.digest,
            # A form that is sent twice declares one campaign.
            idempotency_key=f"form:{values['key'][:100]}" if values.get("key") else None,
        )
    except (SpeciateError, ValidationError) as error:
        return _form(request, dashboard, values, form_errors(error))
    return RedirectResponse(f"/campaigns/{dashboard.stores.campaigns.get(campaign_id).slug}", 303)


def _declaration(values: Mapping[str, str]) -> dict[str, Any]:
    text = {name: value.strip() for name, value in values.items()}
    return {
        "slug": text.get("slug", ""),
        "problems": text.get("problems", "").split(),
        **read_strategy(values),
        **{name: text[name] for name in _TEXTS if text.get(name)},
        **{name: parse_number("integer", text[name]) for name in _COUNTS if text.get(name)},
    }


def _form(
    request: Request, dashboard: DashboardContext, values: Mapping[str, str], errors: FormErrors | None
) -> Response:
    catalog, defaults = dashboard.stores.catalog, Campaign.model_fields
    usual = {name: "" if defaults[name].is_required() else str(defaults[name].default) for name in _COUNTS}
    counts = [
        Field(name, name.replace("_", " "), "integer", values.get(name, usual[name]), note)
        for name, note in _COUNTS.items()
    ]
    context: dict[str, Any] = {
        "values": values,
        "errors": errors,
        "counts": counts,
        "modes": [mode.value for mode in AllocationMode],
        **strategy_context(values),
        "policies": list(dict.fromkeys(p.definition.slug for p in catalog.policies(limit=500).items)),
        "sets": [found.slug for found in catalog.problem_sets(limit=100).items],
        "key": values.get("key") or uuid4().hex,
    }
    return page(request, "new_campaign.html", 200 if errors is None else 422, **context)
