"""The first page: what goes on now, what was reached last, and whether workers are busy."""

from __future__ import annotations

from typing import Any

import redis
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.deck import Deck, DeckDep
from service.dashboard.live import Part
from service.dashboard.pages import fragment, page
from speciate.domain.run import RunState
from speciate.domain.tournament import TournamentState
from speciate.ports.records.work import WorkerProcess
from speciate.storage.presence import present

router = APIRouter(include_in_schema=False)


@router.get("/")
def show_activity(request: Request, deck: DeckDep) -> Response:
    """Show what goes on."""
    return page(request, "activity.html", **_found(deck))


@router.get("/live/activity")
async def watch_activity(deck: DeckDep, seen: str = Query("", max_length=100)) -> StreamingResponse:
    """Send what goes on whenever it changes."""
    return deck.watch("activity", lambda: Part(fragment("activity_live.html", **_found(deck))), run_id=None, seen=seen)


def _found(deck: Deck) -> dict[str, Any]:
    stores = deck.stores
    return {
        "counts": {state.value: count for state, count in deck.overview.runs_by_state().items()},
        "running": stores.runs.list(state=RunState.RUNNING, limit=12).items,
        "latest": stores.runs.list(limit=8).items,
        "unlocks": deck.overview.latest_unlocks(10),
        "tournaments": stores.tournaments.list(state=TournamentState.RUNNING, limit=5).items,
        "workers": workers_of(deck),
    }


def workers_of(deck: Deck) -> tuple[WorkerProcess, ...] | None:
    """Return the workers that are there, or None when Redis, which knows, does not answer."""
    try:
        return present(deck.stores.redis)
    except redis.RedisError:
        return None
