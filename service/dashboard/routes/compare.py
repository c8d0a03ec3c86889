"""Several runs beside each other."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query, Request, Response

from service.dashboard.charts import Chart, download
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.figures.comparison import compare_groups_chart, compare_runs_chart
from service.dashboard.formatting import clip, number, short
from service.dashboard.pages import page
from service.dashboard.run_view import RunView
from speciate.domain.errors import NotFoundError
from speciate.domain.labels import MOST_TAGS
from speciate.domain.objective import Objective
from speciate.ports.records.runs import RunRecord

router = APIRouter(include_in_schema=False, prefix="/compare")

MOST: Final = 8
_Runs = Annotated[list[str] | None, Query(max_length=100, description="ids")]
_Name = Annotated[str, Query(max_length=80)]
_Tags = Annotated[list[str] | None, Query(max_length=MOST * MOST_TAGS, description="whose runs are errors together")]


@router.get("")
def show_comparison(
    request: Request, dashboard: DashboardDep, run: _Runs = None, by: _Name = "", tag: _Tags = None
) -> Response:
    """Show what differs between runs, and which was better when."""
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
        request, "compare.html", **context, query=query, most=MOST, tags=_tags(views), differing=_differing(views)
    )


@router.get("/best.json")
def get_figure(
    request: Request, dashboard: DashboardDep, run: _Runs = None, by: _Name = "", tag: _Tags = None
) -> Response:
    """Send the comparison as Plotly's JSON."""
    views = _views(dashboard, run)
    key = ("compare", by, *_chosen(views, tag), *((view.run.id, view.run.revision) for view in views))
    return dashboard.charts.respond(request, key, lambda: _chart(views, _shared(views), by, _chosen(views, tag)))


@router.get("/best.csv")
def get_data(dashboard: DashboardDep, run: _Runs = None, by: _Name = "", tag: _Tags = None) -> Response:
    """Send the comparison as a file."""
    views = _views(dashboard, run)
    return download(_chart(views, _shared(views), by, _chosen(views, tag)).table, "runs")


def _views(dashboard: DashboardContext, runs: list[str] | None) -> list[RunView]:
    return [RunView(dashboard, dashboard.stores.runs.get(run_id)) for run_id in _ids(runs)[:MOST]]


def _ids(runs: list[str] | None) -> list[UUID]:
    """Return the runs that were chosen, each once."""
    found: dict[UUID, None] = {}
    for text in filter(str.strip, runs or []):
        try:
            found[UUID(text.strip())] = None
        except ValueError:
            raise NotFoundError(f"there is no run {text[:60]!r}.") from None
    return list(found)


def _shared(views: list[RunView]) -> list[Objective]:
    """Return the objectives that all of them declare alike."""
    if not views:
        return []
    others = [{o.name: o.direction for o in view.problem.objectives} for view in views[1:]]
    first = views[0].problem.objectives
    return [o for o in first if all(other.get(o.name) is o.direction for other in others)]


def _tags(views: list[RunView]) -> list[str]:
    return sorted({tag for view in views for tag in view.run.tags})


def _chosen(views: list[RunView], tags: list[str] | None) -> list[str]:
    """Return the tags that were chosen and that one of the runs has."""
    return [tag for tag in _tags(views) if tag in (tags or [])]


def _named(run: RunRecord) -> str:
    parts = (short(run.id), clip(run.name, 40), run.policy, run.spec.strategy, f"seed {run.spec.seed}")
    return " · ".join(filter(None, parts))


def _chart(views: list[RunView], shared: list[Objective], by: str, chosen: list[str]) -> Chart:
    if not shared:
        raise NotFoundError("these runs share no reward.", remedy="Choose runs on one problem.")
    objective = next((o for o in shared if o.name == by), shared[0])
    if not chosen:
        return compare_runs_chart([(_named(view.run), view.population) for view in views], objective)
    together = [(tag, [view.population for view in views if tag in view.run.tags]) for tag in chosen]
    alone = [(_named(view.run), [view.population]) for view in views if not set(chosen) & set(view.run.tags)]
    return compare_groups_chart([*together, *alone], objective)


def _told(value: object) -> str:
    """Return a setting in words; what is not set is left out."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_told(item)}" for name, item in value.items() if item is not None) or "none"
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _differing(views: list[RunView]) -> list[tuple[str, list[str]]]:
    """Return the settings in which the runs are not alike."""
    facts = [
        {
            "problem": f"{v.run.problem}@{v.run.problem_version}",
            "policy": f"{v.run.policy}@{v.run.policy_version}",
            **{name: _told(value) for name, value in v.run.spec.model_dump(mode="json").items()},
        }
        for v in views
    ]
    names = list(facts[0]) if facts else []
    return [(name, [fact[name] for fact in facts]) for name in names if len({fact[name] for fact in facts}) > 1]
