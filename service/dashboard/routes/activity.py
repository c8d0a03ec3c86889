"""Activity page: running runs, latest unlocks and live workers."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.live import LivePart, Seen
from service.dashboard.pages import fragment, page
from speciate.domain.declaration import DeclarationState
from speciate.domain.run import RunState

router = APIRouter(include_in_schema=False)


@router.get("/")
def show_activity(request: Request, dashboard: DashboardDep) -> Response:
    return page(request, "activity.html", **_context(dashboard))


@router.get("/live/activity")
async def watch_activity(dashboard: DashboardDep, seen: Seen = "") -> StreamingResponse:
    return dashboard.watch(
        "activity", lambda: LivePart(fragment("activity_live.html", **_context(dashboard))), run_id=None, seen=seen
    )


def _context(dashboard: DashboardContext) -> dict[str, Any]:
    stores = dashboard.stores
    return {
        "counts": {state.value: count for state, count in dashboard.overview.runs_by_state().items()},
        "running": stores.runs.list(state=RunState.RUNNING, limit=12).items,
        "latest": stores.runs.list(limit=8).items,
        "unlocks": dashboard.overview.latest_unlocks(10),
        "tournaments": stores.tournaments.list(state=DeclarationState.RUNNING, limit=5).items,
        "workers": dashboard.workers(),
    }
