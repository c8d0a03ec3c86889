"""Who is at work, and on what."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.live import LivePart
from service.dashboard.pages import fragment, page

router = APIRouter(include_in_schema=False)

_UNITS = 200


@router.get("/workers")
def show_workers(request: Request, dashboard: DashboardDep) -> Response:
    """Show the processes with their slots, and the work that is leased or waits."""
    return page(request, "workers.html", **_found(dashboard))


@router.get("/live/workers")
async def watch_workers(dashboard: DashboardDep, seen: str = Query("", max_length=100)) -> StreamingResponse:
    """Send the same whenever it changes."""
    return dashboard.watch(
        "workers", lambda: LivePart(fragment("workers_live.html", **_found(dashboard))), run_id=None, seen=seen
    )


def _found(dashboard: DashboardContext) -> dict[str, Any]:
    work = dashboard.stores.runs.work_in_flight(limit=_UNITS)
    leased: dict[str, int] = {}
    for unit in work:
        if unit.state == "leased":
            leased[unit.kind] = leased.get(unit.kind, 0) + 1
    return {"workers": dashboard.workers(), "work": work, "leased": leased, "most": _UNITS}
