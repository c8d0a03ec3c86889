"""What happened in a run, in order, in words."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.deck import Deck, DeckDep
from service.dashboard.event_words import told
from service.dashboard.live import Part
from service.dashboard.pages import fragment, page
from service.dashboard.routes.run import RunDep
from speciate.ports.records.runs import RunRecord

router = APIRouter(include_in_schema=False, prefix="/runs/{run_id}/events")

_LIMIT: Final = 100


@router.get("")
def show_events(
    request: Request, run_id: RunDep, deck: DeckDep, before: Annotated[str, Query(max_length=20)] = ""
) -> Response:
    """Show the log, newest first."""
    run = deck.stores.runs.get(run_id)
    end = int(before) if before.isascii() and before.isdecimal() and len(before) < 19 else run.last_event + 1
    return page(request, "events.html", **_found(deck, run, end), newest=not before)


@router.get("/live")
async def watch_events(run_id: RunDep, deck: DeckDep, seen: str = Query("", max_length=100)) -> StreamingResponse:
    """Send the newest events whenever there are new ones."""

    def render() -> Part:
        run = deck.stores.runs.get(run_id)
        text = fragment("events_live.html", **_found(deck, run, run.last_event + 1))
        return Part(text, str(run.revision), final=run.state.ended)

    return deck.watch(f"events {run_id}", render, run_id=run_id, seen=seen)


def _found(deck: Deck, run: RunRecord, end: int) -> dict[str, Any]:
    after = max(0, min(end, run.last_event + 1) - 1 - _LIMIT)
    events = deck.stores.queries.events(run.id, after=after, limit=_LIMIT)
    lines = [(event, *told(event)) for event in reversed(events) if event.seq < end]
    return {"run": run, "lines": lines, "older": after + 1 if after else None}
