"""Form that declares a tournament."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import parse_number
from service.dashboard.forms import FormDep, FormErrors, form_errors, require_confirmation
from service.dashboard.routes.declarations import form_page, idempotency_key
from speciate.domain.errors import SpeciateError
from speciate.domain.tournament import Metric, StoppingRule, Tournament
from speciate.runs.declarations import pin_tournament
from speciate.search.strategies import STRATEGIES

router = APIRouter(include_in_schema=False, prefix="/tournaments")

FORM_ENTRANTS: Final = 16
"""Rows of entrants: two methods with eight training runs each."""

_SHOWN_ENTRANTS: Final = 6
"""Rows that are not folded."""

_MAX_PARSED_SEEDS: Final = 1001
"""One more than a tournament may have, so that validation reports the excess."""

_SEED_PART: Final = re.compile(r"[^\s,]+")
_SEED_RANGE: Final = re.compile(r"^(\d{1,18})\s*[-–]\s*(\d{1,18})$")
_ENTRANT_FIELDS: Final = ("name", "policy", "mutator", "strategy", "method", "training_seed")


@router.get("/new")
def show_form(request: Request, dashboard: DashboardDep) -> Response:
    return _page(request, dashboard, dict(request.query_params), None)


@router.post("")
def declare_tournament(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    values, store = form.fields, dashboard.stores.tournaments
    try:
        body = _read_form(values)
        declared = Tournament.model_validate(body)
        pinned = pin_tournament(declared, dashboard.stores.catalog)
        require_confirmation(values, body["budget"], pinned.doubt)
        declared_id, _ = store.create(pinned, request_digest=declared.digest, idempotency_key=idempotency_key(values))
    except (SpeciateError, ValidationError) as error:
        return _page(request, dashboard, values, form_errors(error))
    return RedirectResponse(f"/tournaments/{store.get(declared_id).slug}", 303)


def _page(
    request: Request, dashboard: DashboardContext, values: Mapping[str, str], errors: FormErrors | None
) -> Response:
    folded = range(_SHOWN_ENTRANTS, FORM_ENTRANTS)
    return form_page(
        request,
        dashboard,
        "tournament",
        values,
        errors,
        rows=range(FORM_ENTRANTS),
        folded=folded,
        unfold=any(values.get(f"{part}{row}") for part in ("name", "policy") for row in folded),
        strategies=list(STRATEGIES),
        metrics=[metric.value for metric in Metric],
        rules=[rule.value for rule in StoppingRule],
    )


def _read_form(values: Mapping[str, str]) -> dict[str, Any]:
    text = {name: value.strip() for name, value in values.items()}
    entrants = _read_entrants(text)
    return {
        "slug": text.get("slug", ""),
        "title": text.get("title", ""),
        "problems": text.get("problems", "").split(),
        "entrants": entrants,
        "baseline": text.get("baseline") or (entrants[0].get("name", "") if entrants else ""),
        "seeds": parse_seeds(text.get("seeds", "")),
        "budget": {n: parse_number("integer", text[n]) for n in ("evaluations", "tokens") if text.get(n)},
        **{name: text[name] for name in ("target", "metric", "stopping") if text.get(name)},
    }


def _read_entrants(text: Mapping[str, str]) -> list[dict[str, Any]]:
    rows = ({part: text.get(f"{part}{row}", "") for part in _ENTRANT_FIELDS} for row in range(FORM_ENTRANTS))
    return [
        {
            part: parse_number("integer", value) if part == "training_seed" else value
            for part, value in entrant.items()
            if value
        }
        for entrant in rows
        if entrant["name"] or entrant["policy"]
    ]


def parse_seeds(text: str) -> list[Any]:
    """Parse seeds such as ``0-7, 12``. Other text is kept, for validation to report.

    At most one seed more than a tournament may have is returned, since a short range may name any number of them.
    """
    seeds: list[Any] = []
    for part in _SEED_PART.finditer(text):
        if span := _SEED_RANGE.match(part[0]):
            first, last = int(span[1]), int(span[2])
            seeds += range(first, min(last + 1, first + _MAX_PARSED_SEEDS - len(seeds)))
        else:
            seeds.append(parse_number("integer", part[0]))
        if len(seeds) >= _MAX_PARSED_SEEDS:
            break
    return seeds
