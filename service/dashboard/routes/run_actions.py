"""What is done to a run from its page: each action is a form that was confirmed."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from service.dashboard.deck import DeckDep
from service.dashboard.forms import FormDep
from service.dashboard.routes.run import RunDep
from speciate.runs.steer import cancel_run, pause_run, resume_run

router = APIRouter(include_in_schema=False, prefix="/runs")

_MOST_WORDS: Final = 2000


@router.post("/{run_id}/pause")
def pause(run_id: RunDep, form: FormDep, deck: DeckDep) -> Response:
    """Stop handing out its work."""
    pause_run(deck.plane.runs, deck.plane.signals, run_id, form.text("reason")[:_MOST_WORDS] or None)
    return RedirectResponse(f"/runs/{run_id}", 303)


@router.post("/{run_id}/resume")
def resume(run_id: RunDep, form: FormDep, deck: DeckDep) -> Response:  # noqa: ARG001 - read to see where it comes from
    """Hand out its work again."""
    resume_run(deck.plane.runs, deck.plane.signals, run_id)
    return RedirectResponse(f"/runs/{run_id}", 303)


@router.post("/{run_id}/cancel")
def cancel(run_id: RunDep, form: FormDep, deck: DeckDep) -> Response:
    """End it; what was committed stays."""
    cancel_run(deck.plane.runs, deck.plane.signals, run_id, form.text("reason")[:_MOST_WORDS] or None)
    return RedirectResponse(f"/runs/{run_id}", 303)
