"""Family tree of a run's candidates."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from service.dashboard.charts import Chart, download
from service.dashboard.context import DashboardDep
from service.dashboard.figures.lineage import GENERATION, lineage_chart
from service.dashboard.pages import address, page
from service.dashboard.run_page import RunDep, RunPage

router = APIRouter(include_in_schema=False, prefix="/runs/{run_id}/lineage")

_Y = Annotated[str, Query(max_length=80)]
_Of = Annotated[str, Query(max_length=20)]


@router.get("")
def show_lineage(request: Request, run_id: RunDep, dashboard: DashboardDep, y: _Y = "", of: _Of = "") -> Response:
    """Show the family tree of a run."""
    view = RunPage(dashboard, dashboard.stores.runs.get(run_id))
    names = [*(view.problem.space.names if not view.many else ()), GENERATION]
    context: dict[str, Any] = {"run": view.run, "chart": _chart(view, y, of), "names": names, "y": y, "of": of}
    return page(request, "lineage.html", **context, query=address("", y=y, of=of))


@router.get("/lineage.json")
def get_figure(request: Request, run_id: RunDep, dashboard: DashboardDep, y: _Y = "", of: _Of = "") -> Response:
    """Send the family tree as Plotly JSON."""
    view = RunPage(dashboard, dashboard.stores.runs.get(run_id))
    return dashboard.charts.respond(request, (run_id, view.run.revision, "lineage", y, of), lambda: _chart(view, y, of))


@router.get("/lineage.csv")
def get_data(run_id: RunDep, dashboard: DashboardDep, y: _Y = "", of: _Of = "") -> Response:
    """Send the highlighted ancestors as CSV."""
    chart = _chart(RunPage(dashboard, dashboard.stores.runs.get(run_id)), y, of)
    return download(chart.table, f"run-{run_id}-lineage")


def _chart(view: RunPage, y: str, of: str) -> Chart:
    return lineage_chart(view.population, y, int(of) if of.isascii() and of.isdecimal() and len(of) < 19 else None)
