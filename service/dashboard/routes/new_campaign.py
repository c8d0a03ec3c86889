"""Declaring a campaign from a form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.dashboard.deck import Deck, DeckDep
from service.dashboard.fields import Field, number_or_text
from service.dashboard.forms import FormDep
from service.dashboard.pages import page
from service.dashboard.refusals import Refusal, refusal
from service.dashboard.strategy_fields import chosen, shown
from speciate.domain.campaign import Campaign, Mode
from speciate.domain.errors import SpeciateError
from speciate.runs.campaigns import pin

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
def show_form(request: Request, deck: DeckDep) -> Response:
    """Show the form, filled in as the address says."""
    return _form(request, deck, dict(request.query_params), None)


@router.post("/new")
def show_form_again(request: Request, form: FormDep, deck: DeckDep) -> Response:
    """Show the form with the options of another strategy; ten thousand names of problems do not fit an address."""
    return _form(request, deck, form.fields, None)


@router.post("")
def declare(request: Request, form: FormDep, deck: DeckDep) -> Response:
    """Declare it and go to its page, or show the form again with what is wrong."""
    given = form.fields
    try:
        declared = Campaign.model_validate(_declaration(given))
        campaign_id, _ = deck.stores.campaigns.create(
            pin(declared, deck.stores.catalog),
            request_digest=declared.digest,
            # A form that is sent twice declares one campaign.
            idempotency_key=f"form:{given['key'][:100]}" if given.get("key") else None,
        )
    except (SpeciateError, ValidationError) as error:
        return _form(request, deck, given, refusal(error))
    return RedirectResponse(f"/campaigns/{deck.stores.campaigns.get(campaign_id).slug}", 303)


def _declaration(given: Mapping[str, str]) -> dict[str, Any]:
    text = {name: value.strip() for name, value in given.items()}
    return {
        "slug": text.get("slug", ""),
        "problems": text.get("problems", "").split(),
        **chosen(given),
        **{name: text[name] for name in _TEXTS if text.get(name)},
        **{name: number_or_text("integer", text[name]) for name in _COUNTS if text.get(name)},
    }


def _form(request: Request, deck: Deck, given: Mapping[str, str], told: Refusal | None) -> Response:
    catalog, defaults = deck.stores.catalog, Campaign.model_fields
    usual = {name: "" if defaults[name].is_required() else str(defaults[name].default) for name in _COUNTS}
    counts = [
        Field(name, name.replace("_", " "), "integer", given.get(name, usual[name]), note)
        for name, note in _COUNTS.items()
    ]
    context: dict[str, Any] = {
        "given": given,
        "told": told,
        "counts": counts,
        "modes": [mode.value for mode in Mode],
        **shown(given),
        "policies": list(dict.fromkeys(p.definition.slug for p in catalog.policies(limit=500).items)),
        "sets": [found.slug for found in catalog.problem_sets(limit=100).items],
        "key": given.get("key") or uuid4().hex,
    }
    return page(request, "new_campaign.html", 200 if told is None else 422, **context)
