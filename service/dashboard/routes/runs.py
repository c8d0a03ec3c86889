"""Runs: the list, with filters that are part of its address."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse

from service.dashboard.deck import Deck, DeckDep
from service.dashboard.live import Part
from service.dashboard.pages import address, fragment, page
from speciate.domain.run import RunState

router = APIRouter(include_in_schema=False)

_LIMIT = 50
_Text = Annotated[str, Query(max_length=2000)]


@router.get("/runs")
def show_runs(
    request: Request, deck: DeckDep, state: _Text = "", problem: _Text = "", policy: _Text = "", cursor: _Text = ""
) -> Response:
    """Show runs, newest first."""
    found = _found(deck, state, problem, policy, cursor)
    stream = address("/live/runs", state=state, problem=problem, policy=policy)
    return page(
        request,
        "runs.html",
        **found,
        states=[each.value for each in RunState],
        filters={"state": state, "problem": problem, "policy": policy},
        stream="" if cursor else stream,
    )


@router.get("/live/runs")
async def watch_runs(
    deck: DeckDep, state: _Text = "", problem: _Text = "", policy: _Text = "", seen: str = Query("", max_length=100)
) -> StreamingResponse:
    """Send the newest runs whenever one of them changes."""
    return deck.watch(
        f"runs {state} {problem} {policy}",
        lambda: Part(fragment("runs_live.html", **_found(deck, state, problem, policy, ""))),
        run_id=None,
        seen=seen,
    )


def _found(deck: Deck, state: str, problem: str, policy: str, cursor: str) -> dict[str, Any]:
    catalog = deck.plane.catalog
    found = deck.plane.runs.list(
        problem_id=catalog.problem(problem).id if problem else None,
        policy_id=catalog.policy(policy).id if policy else None,
        state=RunState(state) if state in set(RunState) else None,
        limit=_LIMIT,
        cursor=cursor or None,
    )
    older = found.next_cursor and address(
        "/runs", state=state, problem=problem, policy=policy, cursor=found.next_cursor
    )
    return {"runs": found.items, "older": older}
