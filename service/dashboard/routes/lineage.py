"""Family tree of a run's candidates."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from service.dashboard.charts import Chart
from service.dashboard.context import DashboardDep
from service.dashboard.figures.lineage import GENERATION, lineage_chart
from service.dashboard.pages import address, page
from service.dashboard.parameters import RunIdDep, Word, parse_count
from service.dashboard.routes.figures import Figure, add_figure_routes
from service.dashboard.run_view import RunView

router = APIRouter(include_in_schema=False, prefix="/runs/{run_id}/lineage")

_Of = Annotated[str, Query(max_length=20)]


@router.get("")
def show_lineage(request: Request, run_id: RunIdDep, dashboard: DashboardDep, y: Word = "", of: _Of = "") -> Response:
    view = RunView(dashboard, dashboard.stores.runs.get(run_id))
    names = [*(view.problem.space.names if not view.many else ()), GENERATION]
    context: dict[str, Any] = {"run": view.run, "chart": _chart(view, y, of), "names": names, "y": y, "of": of}
    return page(request, "lineage.html", **context, empty=view.empty, query=address("", y=y, of=of))


def _figure(run_id: RunIdDep, dashboard: DashboardDep, y: Word = "", of: _Of = "") -> Figure:
    view = RunView(dashboard, dashboard.stores.runs.get(run_id))
    key = (run_id, view.run.revision, "lineage", y, of)
    return Figure(key, lambda: _chart(view, y, of), f"run-{run_id}-lineage")


def _chart(view: RunView, y: str, of: str) -> Chart:
    focus = parse_count(of)
    if focus is None and view.run.best:
        focus = view.run.best.number
    return lineage_chart(view.population, y, focus)


add_figure_routes(router, "/lineage", _figure)
