"""Event log of a run."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.live import LivePart, Seen
from service.dashboard.pages import fragment, page
from service.dashboard.parameters import RunIdDep, parse_count
from speciate.schema.runs import RunRecord

router = APIRouter(include_in_schema=False, prefix="/runs/{run_id}/events")

_LIMIT: Final = 100


@router.get("")
def show_events(
    request: Request, run_id: RunIdDep, dashboard: DashboardDep, before: Annotated[str, Query(max_length=20)] = ""
) -> Response:
    run = dashboard.stores.runs.get(run_id)
    end = parse_count(before)
    context = _context(dashboard, run, run.last_event + 1 if end is None else end)
    return page(request, "events.html", **context, newest=not before)


@router.get("/live")
async def watch_events(run_id: RunIdDep, dashboard: DashboardDep, seen: Seen = "") -> StreamingResponse:
    def render() -> LivePart:
        run = dashboard.stores.runs.get(run_id)
        text = fragment("events_live.html", **_context(dashboard, run, run.last_event + 1))
        return LivePart(text, str(run.revision), final=run.state.ended)

    return dashboard.watch(f"events {run_id}", render, seen, run_id=run_id)


def _context(dashboard: DashboardContext, run: RunRecord, end: int) -> dict[str, Any]:
    after = max(0, min(end, run.last_event + 1) - 1 - _LIMIT)
    events = dashboard.stores.queries.events(run.id, after=after, limit=_LIMIT)
    return {
        "run": run,
        "events": [event for event in reversed(events) if event.seq < end],
        "older": after + 1 if after else None,
    }
