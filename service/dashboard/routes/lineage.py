"""Family tree of a run's candidates."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from service.dashboard.charts import Chart
from service.dashboard.figures.lineage import GENERATION, lineage_chart
from service.dashboard.pages import address, page
from service.dashboard.parameters import parse_count
from service.dashboard.routes.figures import Figure, add_figure_routes
from service.dashboard.run_view import RunView, RunViewDep

router = APIRouter(include_in_schema=False, prefix="/runs/{run_id}/lineage")

_Of = Annotated[str, Query(max_length=20)]


@router.get("")
def show_lineage(request: Request, view: RunViewDep, of: _Of = "") -> Response:
    names = [*(view.problem.space.names if not view.many else ()), GENERATION]
    context: dict[str, Any] = {"run": view.run, "chart": _chart(view, of), "names": names, "y": view.y, "of": of}
    return page(request, "lineage.html", **context, empty=view.empty, query=address("", y=view.y, of=of))


def _figure(view: RunViewDep, of: _Of = "") -> Figure:
    key = (view.run.id, view.run.revision, "lineage", view.y, of)
    return Figure(key, lambda: _chart(view, of), f"run-{view.run.id}-lineage")


def _chart(view: RunView, of: str) -> Chart:
    focus = parse_count(of)
    if focus is None and view.run.best:
        focus = view.run.best.number
    return lineage_chart(view.population, view.y, focus)


add_figure_routes(router, "/lineage", _figure)
