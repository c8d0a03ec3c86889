"""Page of a run: its charts, and the actions pause, resume, cancel and label."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from pydantic import ValidationError

from service.dashboard.context import DashboardDep
from service.dashboard.forms import FormDep, FormErrors, SubmittedForm, form_errors
from service.dashboard.label_fields import changed_labels, labels_from_run, read_labels
from service.dashboard.live import Seen
from service.dashboard.pages import address, page
from service.dashboard.parameters import RunIdDep
from service.dashboard.routes.figures import Figure, add_figure_routes
from service.dashboard.run_view import RunView, RunViewDep
from speciate.domain.errors import NotFoundError
from speciate.domain.labels import Relabelling

router = APIRouter(include_in_schema=False, prefix="/runs")

_MAX_REASON_LENGTH: Final = 2000


@router.get("/{run_id}")
def show_run(request: Request, view: RunViewDep) -> Response:
    return _page(request, view, "overview")


@router.get("/{run_id}/population")
@router.get("/{run_id}/prompts")
@router.get("/{run_id}/learning")
@router.get("/{run_id}/configuration")
def show_tab(request: Request, view: RunViewDep) -> Response:
    return _page(request, view, request.url.path.rpartition("/")[2])


@router.get("/{run_id}/live")
async def watch_run(run_id: RunIdDep, dashboard: DashboardDep, seen: Seen = "") -> StreamingResponse:
    return dashboard.watch(
        f"run {run_id}", lambda: RunView(dashboard, dashboard.stores.runs.get(run_id)).part(), seen, run_id=run_id
    )


@router.post("/{run_id}/pause")
@router.post("/{run_id}/cancel")
def stop(request: Request, run_id: RunIdDep, form: FormDep, dashboard: DashboardDep) -> Response:
    stores, reason = dashboard.stores, form.text("reason")[:_MAX_REASON_LENGTH] or None
    stop_run = stores.runs.pause if request.url.path.endswith("/pause") else stores.runs.cancel
    stores.signals.committed(stop_run(run_id, reason))
    return RedirectResponse(f"/runs/{run_id}", 303)


@router.post("/{run_id}/resume", dependencies=[SubmittedForm])
def resume(run_id: RunIdDep, dashboard: DashboardDep) -> Response:
    dashboard.stores.signals.committed(dashboard.stores.runs.resume(run_id))
    return RedirectResponse(f"/runs/{run_id}", 303)


@router.post("/{run_id}/labels")
def label(request: Request, run_id: RunIdDep, form: FormDep, dashboard: DashboardDep) -> Response:
    """Change those of name, tags and note that the person changed, or show the page again with the errors."""
    try:
        change = Relabelling.model_validate(read_labels(changed_labels(form.fields)))
    except ValidationError as error:
        view = RunView(dashboard, dashboard.stores.runs.get(run_id))
        return _page(request, view, "configuration", form_errors(error), form.fields)
    dashboard.stores.signals.committed(dashboard.stores.runs.label(run_id, change))
    return RedirectResponse(f"/runs/{run_id}/configuration#labels", 303)


def _page(
    request: Request,
    view: RunView,
    tab: str,
    errors: FormErrors | None = None,
    labels: Mapping[str, str] | None = None,
) -> Response:
    return page(
        request,
        "run.html" if tab == "overview" else "run_tab.html",
        200 if errors is None else 422,
        view=view,
        run=view.run,
        tab=tab,
        query=address("", x=view.x, y=view.y),
        errors=errors,
        labels={**labels_from_run(view.run), **(labels or {})},
    )


def _figure(name: str, view: RunViewDep) -> Figure:
    if name not in view.makers:
        raise NotFoundError(f"this run has no figure {name[:60]!r}.", remedy=f"Figures: {', '.join(view.makers)}.")
    run = view.run
    key = (run.id, run.revision, name, view.x, view.y)
    return Figure(key, view.makers[name], f"run-{run.id}-{name}")


add_figure_routes(router, "/{run_id}/figures/{name}", _figure)
