"""Who is at work, and on what."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.deck import Deck, DeckDep
from service.dashboard.live import Part
from service.dashboard.pages import fragment, page
from service.dashboard.routes.activity import workers_of

router = APIRouter(include_in_schema=False)

_UNITS = 200


@router.get("/workers")
def show_workers(request: Request, deck: DeckDep) -> Response:
    """Show the processes with their slots, and the work that is leased or waits."""
    return page(request, "workers.html", **_found(deck))


@router.get("/live/workers")
async def watch_workers(deck: DeckDep, seen: str = Query("", max_length=100)) -> StreamingResponse:
    """Send the same whenever it changes."""
    return deck.watch("workers", lambda: Part(fragment("workers_live.html", **_found(deck))), run_id=None, seen=seen)


def _found(deck: Deck) -> dict[str, Any]:
    work = deck.stores.runs.work_in_flight(limit=_UNITS)
    leased: dict[str, int] = {}
    for unit in work:
        if unit.state == "leased":
            leased[unit.kind] = leased.get(unit.kind, 0) + 1
    return {"workers": workers_of(deck), "work": work, "leased": leased, "most": _UNITS}
