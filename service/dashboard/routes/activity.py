"""Pages about the whole installation: running runs and latest unlocks at ``/``, and live workers at ``/workers``."""

from collections import Counter
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.live import LivePart, Seen
from service.dashboard.pages import fragment, page
from speciate.domain.declaration import DeclarationState
from speciate.domain.run import RunState
from speciate.schema.declarations import DeclarationRecord
from speciate.schema.runs import RunRecord
from speciate.storage.runs.records import OWN_RUNS

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

    def runs(state: RunState, limit: int) -> tuple[RunRecord, ...]:
        return stores.runs.list(state=state, group=OWN_RUNS, limit=limit).items

    def declarations(state: DeclarationState) -> list[tuple[str, DeclarationRecord[Any]]]:
        tournaments = stores.tournaments.list(state=state, limit=5).items
        campaigns = stores.campaigns.list(state=state, limit=5).items
        return [*(("tournaments", each) for each in tournaments), *(("campaigns", each) for each in campaigns)]

    running, ended = runs(RunState.RUNNING, 12), runs(RunState.COMPLETED, 20)
    waiting, empty = [run for run in running if run.outcome == "waiting"], [run for run in ended if run.no_result]
    return {
        "counts": {state.value: count for state, count in dashboard.stores.overview.runs_by_state().items()},
        "attention": [*waiting, *runs(RunState.PAUSED, 8), *runs(RunState.FAILED, 5), *empty[:5]],
        "paused": declarations(DeclarationState.PAUSED),
        "running": running,
        "declared": declarations(DeclarationState.RUNNING),
        "latest": [run for run in ended if not run.no_result][:10],
        "unlocks": dashboard.stores.overview.latest_unlocks(10),
        "workers": dashboard.workers(),
    }


def _workers(dashboard: DashboardContext) -> dict[str, Any]:
    work = dashboard.stores.runs.work_in_flight(limit=_MAX_UNITS)
    leased = Counter(unit.kind for unit in work if unit.state == "leased")
    return {"workers": dashboard.workers(), "work": work, "leased": leased, "max_units": _MAX_UNITS}
