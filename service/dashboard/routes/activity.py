"""Pages about the whole installation: running runs and latest unlocks at ``/``, and live workers at ``/workers``."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.live import LivePart, Seen
from service.dashboard.pages import fragment, page
from speciate.domain.declaration import DeclarationState
from speciate.domain.run import RunState

router = APIRouter(include_in_schema=False)

_MAX_UNITS: Final = 200


@router.get("/")
def show_activity(request: Request, dashboard: DashboardDep) -> Response:
    return page(request, "activity.html", **_activity(dashboard))


@router.get("/live/activity")
async def watch_activity(dashboard: DashboardDep, seen: Seen = "") -> StreamingResponse:
    return dashboard.watch("activity", lambda: LivePart(fragment("activity_live.html", **_activity(dashboard))), seen)


@router.get("/workers")
def show_workers(request: Request, dashboard: DashboardDep) -> Response:
    return page(request, "workers.html", **_workers(dashboard))


@router.get("/live/workers")
async def watch_workers(dashboard: DashboardDep, seen: Seen = "") -> StreamingResponse:
    return dashboard.watch("workers", lambda: LivePart(fragment("workers_live.html", **_workers(dashboard))), seen)


def _activity(dashboard: DashboardContext) -> dict[str, Any]:
    stores = dashboard.stores
    return {
        "counts": {state.value: count for state, count in dashboard.overview.runs_by_state().items()},
        "running": stores.runs.list(state=RunState.RUNNING, limit=12).items,
        "latest": stores.runs.list(limit=8).items,
        "unlocks": dashboard.overview.latest_unlocks(10),
        "tournaments": stores.tournaments.list(state=DeclarationState.RUNNING, limit=5).items,
        "workers": dashboard.workers(),
    }


def _workers(dashboard: DashboardContext) -> dict[str, Any]:
    work = dashboard.stores.runs.work_in_flight(limit=_MAX_UNITS)
    leased = Counter(unit.kind for unit in work if unit.state == "leased")
    return {"workers": dashboard.workers(), "work": work, "leased": leased, "max_units": _MAX_UNITS}
