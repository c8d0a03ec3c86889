"""Comparison of several runs: best candidates, hypervolume, fronts, and the settings in which they differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from service.dashboard.charts import Chart
from service.dashboard.context import DashboardDep
from service.dashboard.figures.comparison import (
    HYPERVOLUME,
    Measure,
    best_of,
    compare_fronts_chart,
    compare_groups_chart,
    compare_runs_chart,
)
from service.dashboard.figures.population import MAX_AXES, Population, axes
from service.dashboard.formatting import clip, number, short
from service.dashboard.objectives import shared_objectives
from service.dashboard.pages import address, page
from service.dashboard.parameters import Word, parse_id
from service.dashboard.routes.figures import Figure, add_figure_routes
from service.dashboard.run_view import RunView
from speciate.domain.errors import NotFoundError
from speciate.domain.labels import MAX_TAGS
from speciate.domain.objective import Objective
from speciate.schema.runs import RunRecord

router = APIRouter(include_in_schema=False, prefix="/compare")

MAX_RUNS: Final = 8
_Runs = Annotated[list[str] | None, Query(max_length=100)]
_Tags = Annotated[list[str] | None, Query(max_length=MAX_RUNS * MAX_TAGS)]


@dataclass(frozen=True)
class RunComparison:
    """The runs to compare and how."""

    views: list[RunView]
    by: str
    x: str
    y: str
    tags: list[str]

    @cached_property
    def shared(self) -> list[Objective]:
        return shared_objectives([view.problem for view in self.views])

    @cached_property
    def objective(self) -> Objective:
        return next((o for o in self.shared if o.name == self.by), self.shared[0])

    @cached_property
    def axes(self) -> tuple[Objective, Objective | None]:
        return axes([view.population for view in self.views], self.x, self.y)

    @property
    def makers(self) -> dict[str, Callable[[], Chart]]:
        """Functions that draw the charts, by chart name, in the order of the page; empty without shared objectives."""
        if not self.shared:
            return {}
        makers = {"best": lambda: self._curves(best_of(self.objective))}
        selected = {view.problem.space.selected for view in self.views}
        if len(selected) == 1 and 2 <= len(selected.pop()) <= MAX_AXES:
            makers["hypervolume"] = lambda: self._curves(HYPERVOLUME)
        if len(self.shared) > 1:
            makers["fronts"] = self._fronts
        return makers

    @cached_property
    def groups(self) -> list[tuple[str, list[Population]]]:
        """A group of runs per tag, and one per run without any of the tags."""
        groups: dict[str, list[Population]] = {tag: [] for tag in self.tags}
        for view in self.views:
            for name in [tag for tag in self.tags if tag in view.run.tags] or [_label(view.run)]:
                groups.setdefault(name, []).append(view.population)
        return list(groups.items())

    def _curves(self, measure: Measure) -> Chart:
        if self.tags:
            return compare_groups_chart(self.groups, measure)
        return compare_runs_chart([(_label(view.run), view.population) for view in self.views], measure)

    def _fronts(self) -> Chart:
        first, second = self.axes
        return compare_fronts_chart(self.groups, first, second or first)


def _comparison(
    dashboard: DashboardDep, run: _Runs = None, by: Word = "", x: Word = "", y: Word = "", tag: _Tags = None
) -> RunComparison:
    views = [RunView(dashboard, dashboard.stores.runs.get(run_id)) for run_id in _ids(run)[:MAX_RUNS]]
    return RunComparison(views, by, x, y, [each for each in _tags(views) if each in (tag or [])])


_ComparisonDep = Annotated[RunComparison, Depends(_comparison)]


@router.get("")
def show_comparison(request: Request, comparison: _ComparisonDep, run: _Runs = None) -> Response:
    views = comparison.views
    ids, tags = tuple(view.run.id for view in views), tuple(comparison.tags)
    context: dict[str, Any] = {
        "comparison": comparison,
        "runs": [view.run for view in views],
        "left_out": len(_ids(run)) - len(views),
        "query": address("", by=comparison.by, x=comparison.x, y=comparison.y, run=ids, tag=tags),
        "max_runs": MAX_RUNS,
        "tags": _tags(views),
        "differing": _differing(views),
    }
    return page(request, "compare.html", **context)


def _figure(name: str, comparison: _ComparisonDep) -> Figure:
    if name not in comparison.makers:
        remedy = "Choose runs on the same problem." if not comparison.makers else ""
        raise NotFoundError(f"these runs have no figure {name[:60]!r}.", remedy=remedy)
    runs = ((view.run.id, view.run.revision) for view in comparison.views)
    key = ("compare", name, comparison.by, comparison.x, comparison.y, *comparison.tags, *runs)
    return Figure(key, comparison.makers[name], f"runs-{name}")


def _ids(runs: list[str] | None) -> list[UUID]:
    return list(dict.fromkeys(parse_id(text, "run") for text in filter(str.strip, runs or [])))


def _tags(views: list[RunView]) -> list[str]:
    return sorted({tag for view in views for tag in view.run.tags})


def _label(run: RunRecord) -> str:
    described = (clip(run.name, 40),) if run.name else (run.policy, run.spec.strategy, f"seed {run.spec.seed}")
    return " · ".join((short(run.id), *described))


def _format_setting(value: object) -> str:
    if isinstance(value, dict):
        parts = (f"{name} {_format_setting(item)}" for name, item in value.items() if item is not None)
        return ", ".join(parts) or "none"
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _differing(views: list[RunView]) -> list[tuple[str, list[str]]]:
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


add_figure_routes(router, "/{name}", _figure)
