"""List of runs; its filters are query parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.label_fields import parse_tags
from service.dashboard.live import LivePart, Seen
from service.dashboard.pages import address, fragment, page
from service.dashboard.parameters import Text
from service.dashboard.routes.visibility import visibility_from
from speciate.domain.run import RunState
from speciate.domain.values import storable
from speciate.domain.visibility import Visibility
from speciate.schema.runs import RunOrder

router = APIRouter(include_in_schema=False)

_LIMIT = 50


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
        run_id=None,
        seen=seen,
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
