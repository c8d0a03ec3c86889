"""Form that declares a campaign."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import build_fields, read_strategy, read_values, strategy_context
from service.dashboard.forms import FormDep, FormErrors, form_errors, require_confirmation
from service.dashboard.routes.declarations import form_page, idempotency_key
from speciate.domain.campaign import Campaign
from speciate.domain.errors import SpeciateError
from speciate.domain.run import PolicyOptions
from speciate.runs.declarations import pin_campaign

router = APIRouter(include_in_schema=False, prefix="/campaigns")

_BY_HAND: Final = ("slug", "title", "problems", "policy", "mutator", "strategy", "strategy_options")
"""Fields of a campaign that the template has itself."""


@router.get("/new")
def show_form(request: Request, dashboard: DashboardDep) -> Response:
    return _page(request, dashboard, dict(request.query_params), None)


@router.post("/new")
def update_form(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    """Show the form with the options of another strategy; its problems may not fit in a URL."""
    return _page(request, dashboard, form.fields, None)


@router.post("")
def declare_campaign(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
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
    fields = [field for field in build_fields(Campaign, "", values) if field.name not in _BY_HAND]
    learning = [field for field in fields if field.name.startswith("learning")]
    return form_page(
        request,
        dashboard,
        "campaign",
        values,
        errors,
        # Those of its own, such as the evaluations, before those that runs have, too.
        counts=sorted(
            (field for field in fields if field not in learning),
            key=lambda field: field.name in PolicyOptions.model_fields,
        ),
        learning=learning,
        learns=any(field.changed for field in learning),
        **strategy_context(values),
    )


def _read_form(values: Mapping[str, str]) -> dict[str, Any]:
    # A default is left out, because it depends on other fields: a shared learner serves one problem at a time.
    return {
        **read_values(Campaign, "", values),
        **read_strategy(values),
        "problems": values.get("problems", "").split(),
    }
