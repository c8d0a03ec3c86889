"""What is done to a run from its page, each by a form."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.dashboard.deck import DeckDep
from service.dashboard.forms import FormDep
from service.dashboard.label_fields import labels_of
from service.dashboard.refusals import refusal
from service.dashboard.routes.run import RunDep, RunView, run_page
from speciate.domain.labels import Relabelling
from speciate.runs.steer import cancel_run, label_run, pause_run, resume_run

router = APIRouter(include_in_schema=False, prefix="/runs")

_MOST_WORDS: Final = 2000


@router.post("/{run_id}/pause")
def pause(run_id: RunDep, form: FormDep, deck: DeckDep) -> Response:
    """Stop handing out its work."""
    pause_run(deck.stores.runs, deck.stores.signals, run_id, form.text("reason")[:_MOST_WORDS] or None)
    return RedirectResponse(f"/runs/{run_id}", 303)


@router.post("/{run_id}/resume")
def resume(run_id: RunDep, form: FormDep, deck: DeckDep) -> Response:  # noqa: ARG001 - read to see where it comes from
    """Hand out its work again."""
    resume_run(deck.stores.runs, deck.stores.signals, run_id)
    return RedirectResponse(f"/runs/{run_id}", 303)


@router.post("/{run_id}/cancel")
def cancel(run_id: RunDep, form: FormDep, deck: DeckDep) -> Response:
    """End it; what was committed stays."""
    cancel_run(deck.stores.runs, deck.stores.signals, run_id, form.text("reason")[:_MOST_WORDS] or None)
    return RedirectResponse(f"/runs/{run_id}", 303)


@router.post("/{run_id}/labels")
def label(request: Request, run_id: RunDep, form: FormDep, deck: DeckDep) -> Response:
    """Change what people call it, or show its page again with what is wrong."""
    try:
        change = Relabelling.model_validate(labels_of(form.fields))
    except ValidationError as error:
        told = replace(refusal(error), title="These labels cannot be kept")
        return run_page(request, RunView(deck, deck.stores.runs.get(run_id)), told, form.fields)
    label_run(deck.stores.runs, deck.stores.signals, run_id, change)
    return RedirectResponse(f"/runs/{run_id}#labels", 303)
