"""Event log of a run, with a sentence per event."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.formatting import clip, number
from service.dashboard.live import LivePart
from service.dashboard.pages import fragment, page
from service.dashboard.run_page import RunDep
from speciate.domain.event import EventKind
from speciate.ports.records.runs import EventRecord, RunRecord

router = APIRouter(include_in_schema=False, prefix="/runs/{run_id}/events")

_LIMIT: Final = 100


@router.get("")
def show_events(
    request: Request, run_id: RunDep, dashboard: DashboardDep, before: Annotated[str, Query(max_length=20)] = ""
) -> Response:
    """Show the event log, newest first."""
    run = dashboard.stores.runs.get(run_id)
    end = int(before) if before.isascii() and before.isdecimal() and len(before) < 19 else run.last_event + 1
    return page(request, "events.html", **_context(dashboard, run, end), newest=not before)


@router.get("/live")
async def watch_events(
    run_id: RunDep, dashboard: DashboardDep, seen: str = Query("", max_length=100)
) -> StreamingResponse:
    """Stream the newest events."""

    def render() -> LivePart:
        run = dashboard.stores.runs.get(run_id)
        text = fragment("events_live.html", **_context(dashboard, run, run.last_event + 1))
        return LivePart(text, str(run.revision), final=run.state.ended)

    return dashboard.watch(f"events {run_id}", render, run_id=run_id, seen=seen)


def _context(dashboard: DashboardContext, run: RunRecord, end: int) -> dict[str, Any]:
    after = max(0, min(end, run.last_event + 1) - 1 - _LIMIT)
    events = dashboard.stores.queries.events(run.id, after=after, limit=_LIMIT)
    lines = [(event, *describe_event(event)) for event in reversed(events) if event.seq < end]
    return {"run": run, "lines": lines, "older": after + 1 if after else None}


def describe_event(event: EventRecord) -> tuple[str, tuple[int, ...]]:
    """Return a sentence about an event, and the numbers of the candidates that end it."""
    data: dict[str, Any] = dict(event.data)
    match event.kind:
        case EventKind.BATCH_PROPOSED:
            rejected = sum((data.get("rejected") or {}).values())
            more = f", {rejected} could not be read" if rejected else ""
            return f"{_count(data['proposals'], 'candidate')} from {_count(data['rollouts'], 'completion')}{more}", ()
        case EventKind.BATCH_EVALUATED:
            return _evaluated(data)
        case EventKind.TARGET_CLAIMED:
            return f"{data['target']} is claimed and evaluated again: candidate", (int(data["candidate"]),)
        case EventKind.TARGET_CONFIRMED:
            word = "unlocks the problem" if data.get("unlock") else "is on record"
            spent = _count(data.get("evaluations") or 0, "evaluation")
            return f"{data['target']} is confirmed and {word}, after {spent}: candidate", (int(data["candidate"]),)
        case EventKind.TARGET_REFUTED:
            why = f" ({clip(data['detail'], 300)})" if data.get("detail") else ""
            return f"{data['target']} did not hold{why}: candidate", (int(data["candidate"]),)
        case EventKind.ALARM_RAISED | EventKind.RUN_STALLED:
            return clip(data.get("message") or "many candidates fail", 300), ()
        case EventKind.RUN_PAUSED:
            return clip(data.get("reason") or "by request", 300), ()
        case _:
            return "; ".join(
                f"{name}: {clip(value, 200)}" for name, value in data.items() if value not in (None, "")
            ), ()


def _evaluated(data: dict[str, Any]) -> tuple[str, tuple[int, ...]]:
    candidates = data["candidates"]
    failed = sum(1 for candidate in candidates if candidate["failure"])
    twins = sum(1 for candidate in candidates if candidate["duplicate_of"])
    places = sorted({int(place[2]) for place in data["archive"]})
    parts = [_count(len(candidates), "candidate"), f"{_count(data['evaluations'], 'evaluation')} in all"]
    if failed:
        parts.append(f"{failed} failed")
    if twins:
        parts.append(_count(twins, "duplicate"))
    if places:
        parts.append(f"{_count(len(data['archive']), 'place')} in the archive won by")
    return ", ".join(parts), tuple(places[:12])


def _count(count: int, word: str) -> str:
    return f"{number(count)} {word}" + ("" if count == 1 else "s")
