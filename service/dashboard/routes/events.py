"""Event log of a run, with a sentence per event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.formatting import clip, number
from service.dashboard.live import LivePart, Seen
from service.dashboard.pages import fragment, page
from service.dashboard.parameters import RunIdDep, parse_count
from speciate.domain.event import EventKind
from speciate.schema.runs import EventRecord, RunRecord

router = APIRouter(include_in_schema=False, prefix="/runs/{run_id}/events")

_LIMIT: Final = 100
_MAX_ELITES: Final = 12
Sentence = tuple[str, tuple[int, ...]]


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
    lines = [(event, *describe_event(event)) for event in reversed(events) if event.seq < end]
    return {"run": run, "lines": lines, "older": after + 1 if after else None}


def describe_event(event: EventRecord) -> Sentence:
    """Return a sentence about an event, and the numbers of the candidates that end it."""
    return _SENTENCES.get(event.kind, _data)(dict(event.data))


def _proposed(data: dict[str, Any]) -> Sentence:
    rejected = sum((data.get("rejected") or {}).values())
    more = f", {rejected} malformed" if rejected else ""
    return f"{_count(data['proposals'], 'candidate')} from {_count(data['rollouts'], 'completion')}{more}", ()


def _evaluated(data: dict[str, Any]) -> Sentence:
    candidates = data["candidates"]
    failed = sum(1 for candidate in candidates if candidate["failure"])
    duplicates = sum(1 for candidate in candidates if candidate["duplicate_of"])
    elites = sorted({int(cell[2]) for cell in data["archive"]})
    parts = [_count(len(candidates), "candidate"), f"{_count(data['evaluations'], 'evaluation')} in total"]
    if failed:
        parts.append(f"{failed} failed")
    if duplicates:
        parts.append(_count(duplicates, "duplicate"))
    if elites:
        parts.append(f"{_count(len(data['archive']), 'cell')} of the archive won by")
    return ", ".join(parts), tuple(elites[:_MAX_ELITES])


def _claimed(data: dict[str, Any]) -> Sentence:
    return f"{data['target']} claimed, to be confirmed by a second evaluation: candidate", (int(data["candidate"]),)


def _confirmed(data: dict[str, Any]) -> Sentence:
    unlock = ", problem unlocked" if data.get("unlock") else ""
    spent = _count(data.get("evaluations") or 0, "evaluation")
    return f"{data['target']} confirmed{unlock} after {spent}: candidate", (int(data["candidate"]),)


def _refuted(data: dict[str, Any]) -> Sentence:
    reason = f" ({clip(data['detail'], 300)})" if data.get("detail") else ""
    return f"{data['target']} refuted{reason}: candidate", (int(data["candidate"]),)


def _reason(data: dict[str, Any]) -> Sentence:
    return clip(data.get("message") or data.get("reason") or "by request", 300), ()


def _data(data: dict[str, Any]) -> Sentence:
    return "; ".join(f"{name}: {clip(value, 200)}" for name, value in data.items() if value not in (None, "")), ()


def _count(count: int, word: str) -> str:
    return f"{number(count)} {word}" + ("" if count == 1 else "s")


_SENTENCES: Final[dict[str, Callable[[dict[str, Any]], Sentence]]] = {
    EventKind.BATCH_PROPOSED: _proposed,
    EventKind.BATCH_EVALUATED: _evaluated,
    EventKind.TARGET_CLAIMED: _claimed,
    EventKind.TARGET_CONFIRMED: _confirmed,
    EventKind.TARGET_REFUTED: _refuted,
    EventKind.ALARM_RAISED: _reason,
    EventKind.RUN_STALLED: _reason,
    EventKind.RUN_PAUSED: _reason,
}
