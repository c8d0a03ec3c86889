"""Form that starts a run; the strategy's config model gives its option fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, Final
from uuid import UUID, uuid4

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.api.schemas import RunSubmission
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import (
    DEFAULT_STRATEGY,
    OPTION,
    check_fields,
    number_fields,
    parse_number,
    read_strategy,
    strategy_context,
)
from service.dashboard.forms import FormDep, FormErrors, form_errors, require_confirmation
from service.dashboard.learning_fields import learning_fields
from service.dashboard.pages import page
from service.dashboard.run_fields import parse_policies, read_labels, read_search, search_fields, search_from_run
from speciate.domain.errors import FieldError, InvalidInputError, NotFoundError, SpeciateError
from speciate.domain.run import RunSpec
from speciate.domain.seeds import SeedSource
from speciate.policies import can_advise
from speciate.runs.declarations import policies_of
from speciate.runs.start import start_run

router = APIRouter(include_in_schema=False, prefix="/runs")

_MAX_NAMES: Final = 500
_LIMITS: Final = {"evaluations": "integer", "tokens": "integer", "seconds": "number", "dollars": "number"}
_COUNTS: Final = {
    "seed": "Seed of all random choices.",
    "lanes": "Batches in flight. With 1 the run can be replayed exactly.",
    "batch": "Candidates per batch.",
    "samples_per_prompt": "Completions per prompt.",
    "stop_on_plateau": "Stop after this many evaluations without an improvement of the archive. Empty: never.",
}
_BASIC: Final = re.compile(r"(problem|policy|budget)(\.|$)")
"""Fields that the form always shows; all others are under "Advanced"."""

_OPTIONAL: Final = ("mutator", "name", "tags", "seed_from", "shown")
"""Fields that are empty by default; ``shown`` is sent by the button that shows a strategy's options."""

_CHECKS: Final = {
    "stop_on_unlock": "Stop when the problem is unlocked.",
    "reuse_results": "Reuse results of other runs for the same program.",
    "keep_tokens": "Store the id and log-probability of every token, for trainers.",
}


@router.get("/new")
def show_form(request: Request, dashboard: DashboardDep) -> Response:
    """Show the form with the values of the query; ``like`` names a run to copy them from."""
    values = dict(request.query_params)
    if like := values.pop("like", ""):
        values = _like(dashboard, like) | values
    return _form(request, dashboard, values, None)


@router.post("")
def start(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    """Start the run and redirect to its page, or show the form again with the errors."""
    values = form.fields
    try:
        run_id = _start(dashboard, values)
    except (SpeciateError, ValidationError) as error:
        errors = form_errors(error)
        if unknown := [*_unknown_names(dashboard, values)]:
            errors = FormErrors("Invalid values", "Correct these fields:", (*errors.details, *unknown))
        return _form(request, dashboard, values, errors)
    return RedirectResponse(f"/runs/{run_id}", 303)


def _start(dashboard: DashboardContext, values: Mapping[str, str]) -> UUID:
    stores = dashboard.stores
    text = {name: value.strip() for name, value in values.items()}
    limits = {name: parse_number(kind, text[name]) for name, kind in _LIMITS.items() if text.get(name)}
    submitted = RunSubmission.model_validate(
        {
            "problem": text.get("problem", ""),
            "policy": parse_policies(text.get("policy", ""), "policy"),
            "mutator": parse_policies(text["mutator"], "mutator") if text.get("mutator") else None,
            **read_strategy(values),
            **read_search(values),
            "budget": limits,
            **{name: parse_number("integer", text[name]) for name in _COUNTS if text.get(name)},
            **{name: text.get(name) == "on" for name in _CHECKS},
            **read_labels(values),
            "seed_from": [SeedSource.parse(source) for source in text.get("seed_from", "").split()],
        }
    )
    require_confirmation(values, limits)
    run_id, _ = start_run(
        stores.runs,
        stores.signals,
        problem=stores.catalog.problem(submitted.problem),
        policies=policies_of(submitted.policy.items(), (submitted.mutator or {}).items(), stores.catalog),
        spec=submitted.spec(),
        labels=submitted.labels(),
        can_advise=can_advise,
        seeds=submitted.seed_request(),
        # A form sent twice starts one run.
        idempotency_key=f"form:{text['key'][:100]}" if text.get("key") else None,
        request_digest=submitted.digest,
    )
    return run_id


def _unknown_names(dashboard: DashboardContext, values: Mapping[str, str]) -> Iterator[FieldError]:
    """Yield an error for each name of a problem or policy that does not exist."""
    catalog = dashboard.stores.catalog
    for field, find in (("problem", catalog.problem), ("policy", catalog.policy), ("mutator", catalog.policy)):
        text = values.get(field, "").strip()
        with suppress(InvalidInputError):
            named = parse_policies(text, field) if text and field != "problem" else text
            for name in [named] if isinstance(named, str) else named:
                try:
                    if name:
                        find(name)
                except NotFoundError as error:
                    yield FieldError(str(error), where=field)


def _form(
    request: Request, dashboard: DashboardContext, values: Mapping[str, str], errors: FormErrors | None
) -> Response:
    catalog = dashboard.stores.catalog
    strategy = strategy_context(values)
    execution = [*number_fields(RunSpec, _COUNTS, values), *check_fields(_CHECKS, values)]
    search, learning = search_fields(values), learning_fields(values)
    changed = strategy["strategy"] != DEFAULT_STRATEGY or any(values.get(name) for name in _OPTIONAL)
    changed = changed or any(field.changed for field in (*strategy["options"], *execution, *search, *learning))
    wrong = any(detail.where and not _BASIC.match(detail.where) for detail in (errors.details if errors else ()))
    return page(
        request,
        "new_run.html",
        200 if errors is None else 422,
        values=values,
        errors=errors,
        **strategy,
        execution=execution,
        search=search,
        learning=learning,
        advanced=changed or wrong,
        limits=[
            (name, values.get(name, "1000" if name == "evaluations" and not values.get("tokens") else ""))
            for name in _LIMITS
        ],
        problems=_names((p.slug, p.version) for p in catalog.problems(limit=_MAX_NAMES).items),
        policies=_names((p.definition.slug, p.version) for p in catalog.policies(limit=_MAX_NAMES).items),
        key=values.get("key") or uuid4().hex,
    )


def _names(versions: Any) -> list[str]:
    """Return each slug once, newest first."""
    return list(dict.fromkeys(slug for slug, _ in versions))


def _like(dashboard: DashboardContext, run: str) -> dict[str, str]:
    try:
        record = dashboard.stores.runs.get(UUID(run))
    except ValueError:
        raise NotFoundError(f"there is no run {run[:60]!r}.") from None
    spec = record.spec
    values: dict[str, Any] = {
        "problem": f"{record.problem}@{record.problem_version}",
        "strategy": spec.strategy,
        # Tags are shared with other runs; name and note belong to one run.
        "tags": " ".join(record.tags),
        **{name: getattr(spec.budget, name) or "" for name in _LIMITS},
        **{name: getattr(spec, name) for name in _COUNTS if getattr(spec, name) is not None},
        **{name: "on" for name in _CHECKS if getattr(spec, name)},
        **{OPTION + name: _as_text(value) for name, value in spec.strategy_options.items()},
    }
    return {name: str(value) for name, value in values.items()} | search_from_run(record)


def _as_text(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "on" if value else ""
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
