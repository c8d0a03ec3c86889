"""List of runs; its filters are query parameters."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.live import LivePart, Seen
from service.dashboard.pages import address, fragment, page
from service.dashboard.run_fields import parse_tags
from speciate.domain.run import RunState
from speciate.domain.values import storable

router = APIRouter(include_in_schema=False)

_LIMIT = 50
_Text = Annotated[str, Query(max_length=2000)]


@dataclass(frozen=True)
class RunListQuery:
    """RunListQuery of the list; empty ones are ignored.

    Attributes:
        state: State of the run.
        problem: Name of the problem version.
        policy: Name of a policy version of the run.
        tag: One tag, or several that the run must all have.
        name: Part of the run's name.
    """

    state: _Text = ""
    problem: _Text = ""
    policy: _Text = ""
    tag: _Text = ""
    name: _Text = ""


RunListQueryDep = Annotated[RunListQuery, Depends()]


@router.get("/runs")
def show_runs(request: Request, dashboard: DashboardDep, filters: RunListQueryDep, cursor: _Text = "") -> Response:
    """Show runs, newest first."""
    return page(
        request,
        "runs.html",
        **_context(dashboard, filters, cursor),
        states=[each.value for each in RunState],
        filters=filters,
        stream="" if cursor else address("/live/runs", **asdict(filters)),
    )


@router.get("/live/runs")
async def watch_runs(dashboard: DashboardDep, filters: RunListQueryDep, seen: Seen = "") -> StreamingResponse:
    """Stream the newest runs."""
    return dashboard.watch(
        address("runs", **asdict(filters)),
        lambda: LivePart(fragment("runs_live.html", **_context(dashboard, filters, ""))),
        run_id=None,
        seen=seen,
    )


def _context(dashboard: DashboardContext, filters: RunListQuery, cursor: str) -> dict[str, Any]:
    catalog = dashboard.stores.catalog
    found = dashboard.stores.runs.list(
        problem_id=catalog.problem(filters.problem).id if filters.problem else None,
        policy_id=catalog.policy(filters.policy).id if filters.policy else None,
        state=RunState(filters.state) if filters.state in set(RunState) else None,
        tags=parse_tags(filters.tag),
        name=storable(filters.name).strip() or None,
        limit=_LIMIT,
        cursor=cursor or None,
    )
    older = found.next_cursor and address("/runs", **asdict(filters), cursor=found.next_cursor)
    return {"runs": found.items, "older": older, "filtered": any(asdict(filters).values())}
