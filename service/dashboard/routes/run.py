"""Page of a run: its charts and events, and the actions pause, resume, cancel and label."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from pydantic import ValidationError

from service.dashboard.charts import Figure, add_figure_routes
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.forms import FormDep, FormErrors, SubmittedForm, form_errors
from service.dashboard.live import LivePart, Seen
from service.dashboard.pages import address, fragment, page
from service.dashboard.parameters import RunIdDep, parse_count
from service.dashboard.run_view import RunView, RunViewDep
from speciate.domain.errors import NotFoundError
from speciate.domain.labels import Relabelling
from speciate.domain.values import storable
from speciate.schema.runs import RunRecord

router = APIRouter(include_in_schema=False, prefix="/runs")

_MAX_EVENTS: Final = 100
_OPENED: Final = "opened_"
"""Prefix of the fields with the labels that the form had when it was opened."""


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
    stores, reason = dashboard.stores, form.text("reason") or None
    stop_run = stores.runs.pause if request.url.path.endswith("/pause") else stores.runs.cancel
    stores.signals.committed(stop_run(run_id, reason))
    return RedirectResponse(f"/runs/{run_id}", 303)


@router.post("/{run_id}/resume", dependencies=[SubmittedForm])
def resume(run_id: RunIdDep, dashboard: DashboardDep) -> Response:
    dashboard.stores.signals.committed(dashboard.stores.runs.resume(run_id))
    return RedirectResponse(f"/runs/{run_id}", 303)


@router.post("/{run_id}/labels")
def label(request: Request, view: RunViewDep, form: FormDep) -> Response:
    """Change those of name, tags and note that the person changed, or show the page again with the errors."""
    try:
        change = Relabelling.model_validate(_changed_labels(form.fields))
    except ValidationError as error:
        return _page(request, view, "configuration", form_errors(error), form.fields)
    stores = view.dashboard.stores
    stores.signals.committed(stores.runs.label(view.run.id, change))
    return RedirectResponse(f"/runs/{view.run.id}/configuration#labels", 303)


def parse_tags(text: str) -> list[str]:
    return [tag for tag in re.split(r"[\s,]+", storable(text)) if tag]


def _changed_labels(values: Mapping[str, str]) -> dict[str, Any]:
    """Return the labels that differ from those with which the form was opened: others may have changed since."""
    fields = ("name", "tags", "note")
    labels: dict[str, Any] = {
        name: values[name] for name in fields if name in values and values[name] != values.get(_OPENED + name)
    }
    return labels | ({"tags": parse_tags(labels["tags"])} if "tags" in labels else {})


def _page(
    request: Request, view: RunView, tab: str, errors: FormErrors | None = None, labels: Mapping[str, str] | None = None
) -> Response:
    stored = {"name": view.run.name, "tags": " ".join(view.run.tags), "note": view.run.note}
    return page(
        request,
        "run.html" if tab == "overview" else "run_tab.html",
        200 if errors is None else 422,
        view=view,
        run=view.run,
        tab=tab,
        query=address("", x=view.x, y=view.y),
        errors=errors,
        labels={**stored, **{_OPENED + name: value for name, value in stored.items()}, **(labels or {})},
    )


@router.get("/{run_id}/events")
def show_events(request: Request, view: RunViewDep, before: Annotated[str, Query(max_length=20)] = "") -> Response:
    end = parse_count(before)
    context = _events(view.dashboard, view.run, view.run.last_event + 1 if end is None else end)
    return page(request, "events.html", **context, newest=not before)


@router.get("/{run_id}/events/live")
async def watch_events(run_id: RunIdDep, dashboard: DashboardDep, seen: Seen = "") -> StreamingResponse:
    def render() -> LivePart:
        run = dashboard.stores.runs.get(run_id)
        text = fragment("events_live.html", **_events(dashboard, run, run.last_event + 1))
        return LivePart(text, str(run.revision), final=run.state.ended)

    return dashboard.watch(f"events {run_id}", render, seen, run_id=run_id)


def _events(dashboard: DashboardContext, run: RunRecord, end: int) -> dict[str, Any]:
    after = max(0, min(end, run.last_event + 1) - 1 - _MAX_EVENTS)
    events = dashboard.stores.queries.events(run.id, after=after, limit=_MAX_EVENTS)
    return {
        "run": run,
        "events": [event for event in reversed(events) if event.seq < end],
        "older": after + 1 if after else None,
    }


def _figure(name: str, view: RunViewDep) -> Figure:
    if name not in view.makers:
        raise NotFoundError(f"this run has no figure {name[:60]!r}.", remedy=f"Figures: {', '.join(view.makers)}.")
    run = view.run
    return Figure((run.id, run.revision, name, view.x, view.y), view.makers[name], f"run-{run.id}-{name}")


add_figure_routes(router, "/{run_id}/figures/{name}", _figure)
