"""Form that starts a run: its fields are those of ``RunSpec`` and of the strategy's config model."""

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
    Field,
    build_fields,
    form_values,
    parse_number,
    read_strategy,
    read_values,
    strategy_context,
)
from service.dashboard.forms import FormDep, FormErrors, form_errors, require_confirmation
from service.dashboard.label_fields import read_labels
from service.dashboard.pages import page
from speciate.domain.budget import Budget
from speciate.domain.errors import FieldError, InvalidInputError, NotFoundError, SpeciateError
from speciate.domain.labels import Labels
from speciate.domain.policy import PolicyRole
from speciate.domain.run import RunSpec
from speciate.domain.seeds import SeedRequest, SeedSource
from speciate.policies import can_advise
from speciate.runs.run_policies import policies_of
from speciate.runs.start import start_run
from speciate.schema.runs import RunRecord

router = APIRouter(include_in_schema=False, prefix="/runs")

_MAX_NAMES: Final = 500
_FIRST_BUDGET: Final = "1000"
_BASIC: Final = re.compile(r"(problem|policy|budget)(\.|$)")
"""Fields that the form always shows; all others are under "Advanced"."""

_OPTIONAL: Final = ("mutator", "name", "tags", "seed_from", "shown")
"""Fields that are empty by default; ``shown`` is sent by the button that shows a strategy's options."""


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
    limits = read_values(Budget, "", text)
    submitted = RunSubmission.model_validate(
        {
            "problem": text.get("problem", ""),
            "policy": parse_policies(text.get("policy", ""), "policy"),
            "mutator": parse_policies(text["mutator"], "mutator") if text.get("mutator") else None,
            **read_values(RunSpec, "", text),
            **read_strategy(values),
            "budget": limits,
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
        spec=submitted.part(RunSpec),
        labels=submitted.part(Labels),
        can_advise=can_advise,
        seeds=submitted.part(SeedRequest),
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
    parts: dict[str, list[Field]] = {"execution": []}
    for field in build_fields(RunSpec, "", values):
        part, dot, _ = field.name.rpartition(".")
        if part != "budget" and not field.name.startswith("strategy"):
            parts.setdefault(part if dot else "execution", []).append(field)
    changed = strategy["strategy"] != DEFAULT_STRATEGY or any(values.get(name) for name in _OPTIONAL)
    changed = changed or any(field.changed for part in (strategy["options"], *parts.values()) for field in part)
    first = {} if values.get("tokens") else {"evaluations": _FIRST_BUDGET}
    wrong = any(detail.where and not _BASIC.match(detail.where) for detail in (errors.details if errors else ()))
    return page(
        request,
        "new_run.html",
        200 if errors is None else 422,
        values=values,
        errors=errors,
        **strategy,
        parts=parts,
        advanced=changed or wrong,
        limits=build_fields(Budget, "", {**first, **values}),
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
    spec = record.spec.model_dump(mode="json", exclude_none=True)
    return {
        "problem": f"{record.problem}@{record.problem_version}",
        "policy": _ensemble(record, PolicyRole.PROPOSE) or f"{record.policy}@{record.policy_version}",
        "mutator": _ensemble(record, PolicyRole.MUTATE)
        or (f"{record.mutator}@{record.mutator_version}" if record.mutator else ""),
        # Tags are shared with other runs; name and note belong to one run.
        "tags": " ".join(record.tags),
        "evaluations": "",
        **form_values(spec.pop("budget")),
        **form_values(spec.pop("strategy_options"), OPTION),
        **form_values(spec),
    }


def _ensemble(run: RunRecord, role: PolicyRole) -> str:
    members = [member for member in run.ensembles if member.role is role]
    return ", ".join(f"{m.policy}@{m.policy_version}={str(m.weight).removesuffix('.0')}" for m in members)


def parse_policies(text: str, where: str) -> str | dict[str, Any]:
    """Return a policy name, or for several, as in ``small=3, big``, their weights.

    Raises:
        InvalidInputError: A policy is named twice.
    """
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if len(entries) == 1 and "=" not in entries[0]:
        return entries[0]
    weights: dict[str, Any] = {}
    for name, equals, weight in (entry.partition("=") for entry in entries):
        weights[name.strip()] = parse_number("number", weight.strip()) if equals else 1.0
    if len(weights) < len(entries):
        detail = FieldError("names a policy twice: expected each policy once", where=where)
        raise InvalidInputError(f"The {where} is not valid: {detail}", field_errors=(detail,))
    return weights
