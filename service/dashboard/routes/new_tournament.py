"""Declaring a tournament from a form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final
from uuid import uuid4

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import parse_number
from service.dashboard.forms import FormDep, FormErrors, form_errors
from service.dashboard.pages import page
from speciate.domain.errors import SpeciateError
from speciate.domain.tournament import Metric, StoppingRule, Tournament
from speciate.runs.declarations import pin_tournament
from speciate.search.strategies import STRATEGIES

router = APIRouter(include_in_schema=False, prefix="/tournaments")

ENTRANTS: Final = 6
_ENOUGH_SEEDS: Final = 1001
"""One more than a tournament may have: whoever asks for more is errors so."""
_PART: Final = re.compile(r"[^\s,]+")
_SPAN: Final = re.compile(r"^(\d{1,18})\s*[-–]\s*(\d{1,18})$")
_PARTS: Final = ("name", "policy", "mutator", "strategy")


@router.get("/new")
def show_form(request: Request, dashboard: DashboardDep) -> Response:
    """Show the form, filled in as the address says."""
    return _form(request, dashboard, dict(request.query_params), None)


@router.post("")
def declare(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    """Declare it and go to its page, or show the form again with what is wrong."""
    values = form.fields
    try:
        declared = Tournament.model_validate(_declaration(values))
        tournament_id, _ = dashboard.stores.tournaments.create(
            pin_tournament(declared, dashboard.stores.catalog),
            request_digest=declared.digest,
            # A form that is sent twice declares one tournament.
            idempotency_key=f"form:{values['key'][:100]}" if values.get("key") else None,
        )
    except (SpeciateError, ValidationError) as error:
        return _form(request, dashboard, values, form_errors(error))
    return RedirectResponse(f"/tournaments/{dashboard.stores.tournaments.get(tournament_id).slug}", 303)


def _declaration(values: Mapping[str, str]) -> dict[str, Any]:
    text = {name: value.strip() for name, value in values.items()}
    entrants = []
    for row in range(ENTRANTS):
        entrant = {part: text.get(f"{part}{row}", "") for part in _PARTS}
        if entrant["name"] or entrant["policy"]:
            entrants.append({part: value for part, value in entrant.items() if value})
    names = [entrant.get("name", "") for entrant in entrants]
    limits = {name: parse_number("integer", text[name]) for name in ("evaluations", "tokens") if text.get(name)}
    return {
        "slug": text.get("slug", ""),
        "title": text.get("title", ""),
        "problems": text.get("problems", "").split(),
        "entrants": entrants,
        "baseline": text.get("baseline") or (names[0] if names else ""),
        "seeds": parse_seeds(text.get("seeds", "")),
        "budget": limits,
        **{name: text[name] for name in ("target", "metric", "stopping") if text.get(name)},
    }


def parse_seeds(text: str) -> list[Any]:
    """Return the seeds that a text such as ``0-7, 12`` names; what is none stays text, and is refused later.

    Of too many, which are refused later too, only one too many is returned: a small form may name any number of them.
    """
    found: list[Any] = []
    for part in _PART.finditer(text):
        if span := _SPAN.match(part[0]):
            first, last = int(span[1]), int(span[2])
            found += range(first, min(last + 1, first + _ENOUGH_SEEDS - len(found)))
        else:
            found.append(parse_number("integer", part[0]))
        if len(found) >= _ENOUGH_SEEDS:
            break
    return found


def _form(
    request: Request, dashboard: DashboardContext, values: Mapping[str, str], errors: FormErrors | None
) -> Response:
    catalog = dashboard.stores.catalog
    context: dict[str, Any] = {
        "values": values,
        "errors": errors,
        "rows": range(ENTRANTS),
        "strategies": list(STRATEGIES),
        "metrics": [metric.value for metric in Metric],
        "rules": [rule.value for rule in StoppingRule],
        "policies": list(dict.fromkeys(p.definition.slug for p in catalog.policies(limit=500).items)),
        "sets": [found.slug for found in catalog.problem_sets(limit=100).items],
        "key": values.get("key") or uuid4().hex,
    }
    return page(request, "new_tournament.html", 200 if errors is None else 422, **context)
