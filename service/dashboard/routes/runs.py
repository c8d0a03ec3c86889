"""The list of runs, and the form that starts one, with the fields of ``RunSpec`` and the strategy's config model."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from pydantic import ValidationError

from service.api.runs import start_submitted
from service.api.schemas import RunSubmission
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.fields import form_values
from service.dashboard.forms import FormDep, idempotency_key, require_confirmation
from service.dashboard.live import LivePart, Seen
from service.dashboard.model_form import ModelForm, add_form_routes, strategies
from service.dashboard.pages import address, fragment, page
from service.dashboard.parameters import Text, parse_id
from service.dashboard.routes.run import parse_tags
from service.dashboard.routes.visibility import visibility_from
from speciate.domain.errors import SpeciateError
from speciate.domain.policy import PolicyRole
from speciate.domain.run import RunState
from speciate.domain.seeds import SeedSource
from speciate.domain.values import storable
from speciate.domain.visibility import Visibility
from speciate.schema.runs import RunOrder, RunRecord
from speciate.storage.runs.records import OWN_RUNS

router = APIRouter(include_in_schema=False, prefix="/runs")

_LIMIT = 50
_FIRST_BUDGET: Final = "1000"


@dataclass(frozen=True)
class RunListQuery:
    """Filters and order of the list; empty filters are ignored."""

    state: Text = ""  # or "archived" or "deleted", which other values leave out
    problem: Text = ""
    policy: Text = ""
    tag: Text = ""  # one, or several that the run must all have
    name: Text = ""
    group: Text = ""  # as for ``RunFilter``; by default without runs of tournaments and campaigns
    sort: Text = ""
    reverse: Text = ""  # "1" for the opposite order


RunListQueryDep = Annotated[RunListQuery, Depends()]


@router.get("")
def show_runs(request: Request, dashboard: DashboardDep, filters: RunListQueryDep, cursor: Text = "") -> Response:
    return page(
        request,
        "runs.html",
        **_context(dashboard, filters, cursor),
        states=[each.value for each in (*RunState, Visibility.ARCHIVED, Visibility.DELETED)],
        filters=filters,
        stream="" if cursor else address("/runs/live", **asdict(filters)),
    )


@router.get("/live")
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
        group=storable(filters.group).strip() or OWN_RUNS,
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
        "all": address("/runs", **query | {"group": "all"}) if filters.group in {"", "own"} else "",
        "heads": {each.value: _head(each, query, current=each is order, reverse=reverse) for each in RunOrder},
    }


def _head(order: RunOrder, query: Mapping[str, str], *, current: bool, reverse: bool) -> tuple[str, str]:
    """Return the address that sorts by a column, or reverses it if it is the current one, and its ``aria-sort``."""
    href = address("/runs", **query, sort=order.value, reverse="1" if current and not reverse else "")
    return href, ("ascending" if order.ascending is not reverse else "descending") if current else ""


FORM: Final = ModelForm(
    path="/runs",
    title="Start a run",
    button="Start run",
    models=(RunSubmission,),
    first=("name", "problem", "policy", "budget.evaluations", "budget.tokens", "budget.seconds", "budget.dollars"),
    plug_ins=strategies(RunSubmission.model_fields["strategy"].default),
    omitted=frozenset({"seeds"}),
    notes={
        "policy": "Proposes candidates; several with weights, such as small=3, big=1.",
        "seed_from": "Ids of runs of the same problem, separated by blanks: RUN or RUN:front for the Pareto front,"
        " RUN:front=N for its best N, RUN:best. Empty: the problem's seed program.",
    },
)


def _prepare(dashboard: DashboardContext, values: dict[str, str]) -> dict[str, str]:
    """Copy the values of the run that the query names as ``like``."""
    like = values.pop("like", "")
    return {"budget.evaluations": _FIRST_BUDGET} | (_like(dashboard, like) if like else {}) | values


add_form_routes(router, FORM, _prepare)


@router.post("")
def start(request: Request, form: FormDep, dashboard: DashboardDep) -> Response:
    """Start the run and redirect to its page, or show the form again with the errors."""
    values = form.fields
    try:
        body = {"budget": {}} | FORM.read(values)
        body["seed_from"] = [SeedSource.parse(str(source)) for source in body.get("seed_from", ())]
        submitted = RunSubmission.model_validate(body)
        require_confirmation(values, body["budget"])
        run_id = start_submitted(submitted, dashboard.stores, idempotency_key(values, submitted.digest))
    except (SpeciateError, ValidationError) as error:
        return FORM.refuse(request, dashboard, values, error)
    return RedirectResponse(f"/runs/{run_id}", 303)


def _like(dashboard: DashboardContext, run: str) -> dict[str, str]:
    record = dashboard.stores.runs.get(parse_id(run, "run"))
    spec = record.spec.model_dump(mode="json", exclude_none=True)
    return {
        "problem": f"{record.problem}@{record.problem_version}",
        "policy": _ensemble(record, PolicyRole.PROPOSE) or record.policies_of("propose"),
        "mutator": _ensemble(record, PolicyRole.MUTATE) or record.policies_of("mutate"),
        # Tags are shared with other runs; name and note belong to one run.
        "tags": " ".join(record.tags),
        "budget.evaluations": "",
        **form_values(spec),
        "engine_options": json.dumps(spec["engine_options"]) if record.spec.engine_options else "",
    }


def _ensemble(run: RunRecord, role: PolicyRole) -> str:
    members = [member for member in run.ensembles if member.role is role]
    return ", ".join(f"{m.policy}@{m.policy_version}={str(m.weight).removesuffix('.0')}" for m in members)
