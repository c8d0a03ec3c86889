"""Comparison of several runs: best values so far, and the settings in which they differ."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from service.dashboard.charts import Chart
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.figures.comparison import compare_groups_chart, compare_runs_chart
from service.dashboard.figures.population import Population
from service.dashboard.formatting import clip, number, short
from service.dashboard.pages import page
from service.dashboard.routes.figures import Figure, add_figure_routes
from service.dashboard.run_page import RunPage
from speciate.domain.errors import NotFoundError
from speciate.domain.labels import MAX_TAGS
from speciate.domain.objective import Objective
from speciate.ports.records.runs import RunRecord

router = APIRouter(include_in_schema=False, prefix="/compare")

MAX_RUNS: Final = 8
_Runs = Annotated[list[str] | None, Query(max_length=100)]
_Name = Annotated[str, Query(max_length=80)]
_Tags = Annotated[list[str] | None, Query(max_length=MAX_RUNS * MAX_TAGS)]


@router.get("")
def show_comparison(
    request: Request, dashboard: DashboardDep, run: _Runs = None, by: _Name = "", tag: _Tags = None
) -> Response:
    """Show the best values of the runs and their differing settings."""
    views = _views(dashboard, run)
    shared, chosen = _shared(views), _chosen(views, tag)
    chart = _chart(views, shared, by, chosen) if shared else None
    query = "?" + urlencode(
        [("by", by), *(("run", view.run.id) for view in views), *(("tag", each) for each in chosen)]
    )
    context: dict[str, Any] = {
        "runs": [view.run for view in views],
        "chart": chart,
        "shared": shared,
        "by": by,
        "chosen": chosen,
        "left_out": len(_ids(run)) - len(views),
    }
    return page(
        request,
        "compare.html",
        **context,
        query=query,
        max_runs=MAX_RUNS,
        tags=_tags(views),
        differing=_differing(views),
    )


def _figure(dashboard: DashboardDep, run: _Runs = None, by: _Name = "", tag: _Tags = None) -> Figure:
    views = _views(dashboard, run)
    chosen = _chosen(views, tag)
    key = ("compare", by, *chosen, *((view.run.id, view.run.revision) for view in views))
    return Figure(key, lambda: _chart(views, _shared(views), by, chosen), "runs")


def _views(dashboard: DashboardContext, runs: list[str] | None) -> list[RunPage]:
    return [RunPage(dashboard, dashboard.stores.runs.get(run_id)) for run_id in _ids(runs)[:MAX_RUNS]]


def _ids(runs: list[str] | None) -> list[UUID]:
    """Return the chosen run ids without duplicates."""
    found: dict[UUID, None] = {}
    for text in filter(str.strip, runs or []):
        try:
            found[UUID(text.strip())] = None
        except ValueError:
            raise NotFoundError(f"there is no run {text[:60]!r}.") from None
    return list(found)


def _shared(views: list[RunPage]) -> list[Objective]:
    """Return the objectives that all runs declare with the same direction."""
    if not views:
        return []
    others = [{o.name: o.direction for o in view.problem.objectives} for view in views[1:]]
    first = views[0].problem.objectives
    return [o for o in first if all(other.get(o.name) is o.direction for other in others)]


def _tags(views: list[RunPage]) -> list[str]:
    return sorted({tag for view in views for tag in view.run.tags})


def _chosen(views: list[RunPage], tags: list[str] | None) -> list[str]:
    """Return the chosen tags that occur among the runs."""
    return [tag for tag in _tags(views) if tag in (tags or [])]


def _label(run: RunRecord) -> str:
    parts = (short(run.id), clip(run.name, 40), run.policy, run.spec.strategy, f"seed {run.spec.seed}")
    return " · ".join(filter(None, parts))


def _chart(views: list[RunPage], shared: list[Objective], by: str, chosen: list[str]) -> Chart:
    if not shared:
        raise NotFoundError("these runs share no objective.", remedy="Choose runs on the same problem.")
    objective = next((o for o in shared if o.name == by), shared[0])
    if not chosen:
        return compare_runs_chart([(_label(view.run), view.population) for view in views], objective)
    return compare_groups_chart(_groups(views, chosen), objective)


def _groups(views: list[RunPage], tags: list[str]) -> list[tuple[str, list[Population]]]:
    """Return a group of runs per tag, and one per run without any of the tags."""
    groups: dict[str, list[Population]] = {tag: [] for tag in tags}
    for view in views:
        for name in [tag for tag in tags if tag in view.run.tags] or [_label(view.run)]:
            groups.setdefault(name, []).append(view.population)
    return list(groups.items())


def _format_setting(value: object) -> str:
    """Format a setting; values that are not set are left out."""
    if isinstance(value, dict):
        return (
            ", ".join(f"{name} {_format_setting(item)}" for name, item in value.items() if item is not None) or "none"
        )
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _differing(views: list[RunPage]) -> list[tuple[str, list[str]]]:
    """Return the settings in which the runs differ, with a value per run."""
    facts = [
        {
            "problem": f"{v.run.problem}@{v.run.problem_version}",
            "policy": f"{v.run.policy}@{v.run.policy_version}",
            **{name: _format_setting(value) for name, value in v.run.spec.model_dump(mode="json").items()},
        }
        for v in views
    ]
    names = list(facts[0]) if facts else []
    return [(name, [fact[name] for fact in facts]) for name in names if len({fact[name] for fact in facts}) > 1]


add_figure_routes(router, "/best", _figure)
