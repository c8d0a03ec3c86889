"""What is done to a run from its page, each by a form."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from service.dashboard.context import DashboardDep
from service.dashboard.forms import FormDep, form_errors
from service.dashboard.routes.run import RunDep, RunView, run_page
from service.dashboard.run_fields import read_labels
from speciate.domain.labels import Relabelling
from speciate.runs.steer import cancel_run, label_run, pause_run, resume_run

router = APIRouter(include_in_schema=False, prefix="/runs")

_MOST_WORDS: Final = 2000


@router.post("/{run_id}/pause")
def pause(run_id: RunDep, form: FormDep, dashboard: DashboardDep) -> Response:
    """Stop handing out its work."""
    pause_run(dashboard.stores.runs, dashboard.stores.signals, run_id, form.text("reason")[:_MOST_WORDS] or None)
    return RedirectResponse(f"/runs/{run_id}", 303)


@router.post("/{run_id}/resume")
def resume(run_id: RunDep, form: FormDep, dashboard: DashboardDep) -> Response:  # noqa: ARG001 - read to see where it comes from
    """Hand out its work again."""
    resume_run(dashboard.stores.runs, dashboard.stores.signals, run_id)
    return RedirectResponse(f"/runs/{run_id}", 303)


@router.post("/{run_id}/cancel")
def cancel(run_id: RunDep, form: FormDep, dashboard: DashboardDep) -> Response:
    """End it; what was committed stays."""
    cancel_run(dashboard.stores.runs, dashboard.stores.signals, run_id, form.text("reason")[:_MOST_WORDS] or None)
    return RedirectResponse(f"/runs/{run_id}", 303)


@router.post("/{run_id}/labels")
def label(request: Request, run_id: RunDep, form: FormDep, dashboard: DashboardDep) -> Response:
    """Change what people call it, or show its page again with what is wrong."""
    try:
        change = Relabelling.model_validate(read_labels(form.fields))
    except ValidationError as error:
        errors = replace(form_errors(error), title="These labels cannot be kept")
        return run_page(request, RunView(dashboard, dashboard.stores.runs.get(run_id)), errors, form.fields)
    label_run(dashboard.stores.runs, dashboard.stores.signals, run_id, change)
    return RedirectResponse(f"/runs/{run_id}#labels", 303)
