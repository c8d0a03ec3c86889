"""Workers page: live worker processes, and work units in flight."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.live import LivePart, Seen
from service.dashboard.pages import fragment, page

router = APIRouter(include_in_schema=False)

_MAX_UNITS = 200


@router.get("/workers")
def show_workers(request: Request, dashboard: DashboardDep) -> Response:
    return page(request, "workers.html", **_context(dashboard))


@router.get("/live/workers")
async def watch_workers(dashboard: DashboardDep, seen: Seen = "") -> StreamingResponse:
    return dashboard.watch(
        "workers", lambda: LivePart(fragment("workers_live.html", **_context(dashboard))), run_id=None, seen=seen
    )


def _context(dashboard: DashboardContext) -> dict[str, Any]:
    work = dashboard.stores.runs.work_in_flight(limit=_MAX_UNITS)
    leased: dict[str, int] = {}
    for unit in work:
        if unit.state == "leased":
            leased[unit.kind] = leased.get(unit.kind, 0) + 1
    return {"workers": dashboard.workers(), "work": work, "leased": leased, "max_units": _MAX_UNITS}
