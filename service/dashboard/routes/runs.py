"""The list of runs, and the form that starts one, with the fields of ``RunSpec`` and the strategy's config model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from pydantic import ValidationError

from service.api.runs import start_submitted
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
from service.dashboard.forms import FormDep, FormErrors, form_errors, form_page, idempotency_key, require_confirmation
from service.dashboard.label_fields import parse_tags, read_labels
from service.dashboard.live import LivePart, Seen
from service.dashboard.pages import address, fragment, page
from service.dashboard.parameters import Text, parse_id
from service.dashboard.routes.visibility import visibility_from
from speciate.domain.budget import Budget
from speciate.domain.errors import FieldError, InvalidInputError, NotFoundError, SpeciateError
from speciate.domain.policy import PolicyRole
from speciate.domain.run import RunSpec, RunState
from speciate.domain.seeds import SeedSource
from speciate.domain.values import storable
from speciate.domain.visibility import Visibility
from speciate.schema.runs import RunOrder, RunRecord

router = APIRouter(include_in_schema=False)

_LIMIT = 50
_MAX_NAMES: Final = 500
_FIRST_BUDGET: Final = "1000"
_BASIC: Final = re.compile(r"(problem|policy|budget)(\.|$)")
"""Fields that the form always shows; all others are under "Advanced"."""

_OPTIONAL: Final = ("mutator", "name", "tags", "seed_from", "shown")
"""Fields that are empty by default; ``shown`` is sent by the button that shows a strategy's options."""


@dataclass(frozen=True)
class RunListQuery:
    """Filters and order of the list; empty filters are ignored."""

    state: Text = ""  # or "archived" or "deleted", which other values leave out
    problem: Text = ""
    policy: Text = ""
    tag: Text = ""  # one, or several that the run must all have
    name: Text = ""
    sort: Text = ""
    reverse: Text = ""  # "1" for the opposite order


RunListQueryDep = Annotated[RunListQuery, Depends()]


@router.get("/runs")
def show_runs(request: Request, dashboard: DashboardDep, filters: RunListQueryDep, cursor: Text = "") -> Response:
    return page(
        request,
        "runs.html",
        **_context(dashboard, filters, cursor),
        states=[each.value for each in (*RunState, Visibility.ARCHIVED, Visibility.DELETED)],
        filters=filters,
        stream="" if cursor else address("/live/runs", **asdict(filters)),
    )


@router.get("/live/runs")
async def watch_runs(dashboard: DashboardDep, filters: RunListQueryDep, seen: Seen = "") -> StreamingResponse:
    return dashboard.watch(
        address("runs", **asdict(filters)),
        lambda: LivePart(fragment("runs_live.html", **_context(dashboard, filters, ""))),
        seen,
    )


def _context(dashboard: DashboardContext, filters: RunListQuery, cursor: str) -> dict[str, Any]:
    catalog = dashboard.stores.catalog
    order = RunOrder(filters.sort) if filters.sort in set(RunOrder) else RunOrder.STARTED
    reverse = filters.reverse == "1"
    runs = dashboard.stores.runs.list(
        problem_id=catalog.problem(filters.problem).id if filters.problem else None,
        policy_id=catalog.policy(filters.policy).id if filters.policy else None,
        state=RunState(filters.state) if filters.state in set(RunState) else None,
        tags=parse_tags(filters.tag),
        name=storable(filters.name).strip() or None,
        order=order,
        reverse=reverse,
        visibility=visibility_from(filters.state),
        limit=_LIMIT,
        cursor=cursor or None,
    )
    query = asdict(filters)
    older = runs.next_cursor and address("/runs", **query, cursor=runs.next_cursor)
    order_given = {query.pop("sort"), query.pop("reverse")}
    return {
        "runs": runs.items,
        "list": address("/runs", **asdict(filters)),
        "next": older,
        "next_label": "Next" if any(order_given) else "Older",
        "filtered": any(query.values()),
        "heads": {each.value: _head(each, query, current=each is order, reverse=reverse) for each in RunOrder},
    }


def _head(order: RunOrder, query: Mapping[str, str], *, current: bool, reverse: bool) -> tuple[str, str]:
    """Return the address that sorts by a column, or reverses it if it is the current one, and its ``aria-sort``."""
    turned = "1" if current and not reverse else ""
    href = address("/runs", **query, sort=order.value, reverse=turned)
    ascending = order.ascending is not reverse
    return href, ("ascending" if ascending else "descending") if current else ""


@router.get("/runs/new")
def show_form(request: Request, dashboard: DashboardDep) -> Response:
    """Show the form with the values of the query; ``like`` names a run to copy them from."""
    values = dict(request.query_params)
    if like := values.pop("like", ""):
        values = _like(dashboard, like) | values
    return _form(request, dashboard, values, None)


@router.post("/runs")
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
    return start_submitted(submitted, dashboard.stores, idempotency_key(text))


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
    return form_page(
        request,
        catalog,
        "run",
        values,
        errors,
        **strategy,
        parts=parts,
        advanced=changed or wrong,
        limits=build_fields(Budget, "", {**first, **values}),
        problems=list(dict.fromkeys(problem.slug for problem in catalog.problems(limit=_MAX_NAMES).items)),
    )


def _like(dashboard: DashboardContext, run: str) -> dict[str, str]:
    record = dashboard.stores.runs.get(parse_id(run, "run"))
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
