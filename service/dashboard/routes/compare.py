"""Comparison of several runs: best values, hypervolume, fronts, and the settings in which they differ."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Final
from uuid import UUID

from fastapi import APIRouter, Depends, Query, Request, Response

from service.dashboard.charts import Chart, Figure, add_figure_routes
from service.dashboard.context import DashboardDep
from service.dashboard.figures.comparison import HYPERVOLUME, best_of, compare_curves_chart, compare_fronts_chart
from service.dashboard.figures.population import MAX_AXES, Population, axes
from service.dashboard.formatting import clip, short
from service.dashboard.objectives import shared_objectives
from service.dashboard.pages import address, page
from service.dashboard.parameters import Word, parse_id
from service.dashboard.run_view import RunView
from speciate.domain.errors import NotFoundError
from speciate.domain.objective import Objective, ObjectiveRole
from speciate.schema.runs import RunRecord
from speciate.schema.unlocks import pair_name

router = APIRouter(include_in_schema=False, prefix="/compare")

MAX_RUNS: Final = 24
DEFAULT_RUNS: Final = 5
GROUPS: Final = ("tag", "seed", "policy", "strategy")
_Runs = Annotated[list[str] | None, Query(max_length=100)]


@dataclass(frozen=True)
class RunComparison:
    views: list[RunView]
    by: str
    x: str
    y: str
    group: str

    @cached_property
    def shared(self) -> list[Objective]:
        return shared_objectives([view.problem for view in self.views])

    @property
    def measures(self) -> list[str]:
        """The objectives that the curves can show, and the hypervolume if all problems have the same few."""
        selected = {view.problem.space.selected for view in self.views}
        volume = len(selected) == 1 and 2 <= len(selected.pop()) <= MAX_AXES
        objectives = [o.name for o in self.shared if o.role is ObjectiveRole.OBJECTIVE] or [o.name for o in self.shared]
        return [*objectives, *(["hypervolume"] if volume else [])]

    @cached_property
    def axes(self) -> tuple[Objective, Objective | None]:
        return axes([view.population for view in self.views], self.x, self.y)

    @property
    def makers(self) -> dict[str, Callable[[], Chart]]:
        """Functions that draw the charts, by chart name, in the order of the page; empty without shared objectives."""
        if not self.shared:
            return {}
        makers = {"curves": self._curves}
        if len(self.shared) > 1:
            makers["fronts"] = self._fronts
        return makers

    @cached_property
    def groups(self) -> list[tuple[str, list[Population]]]:
        """The runs by group: by a tag that not all have, by seed, by policy or by strategy; else each alone."""
        common = set.intersection(*({*view.run.tags} for view in self.views))
        groups: dict[str, list[Population]] = {}
        for view in self.views:
            run, policies = view.run, view.run.policies_of("propose")
            names = {
                "tag": [tag for tag in run.tags if tag not in common],
                "seed": [f"seed {run.spec.seed}"],
                "policy": [" + ".join((pair_name(policies, run.policies_of("mutate") or None), *run.proposers))],
                "strategy": [run.spec.searched_by],
            }.get(self.group)
            for name in names or [_label(run)]:
                groups.setdefault(name, []).append(view.population)
        return list(groups.items())

    def _curves(self) -> Chart:
        by = self.by if self.by in self.measures else self.measures[0]
        objective = next((o for o in self.shared if o.name == by), None)
        return compare_curves_chart(self.groups, HYPERVOLUME if objective is None else best_of(objective))

    def _fronts(self) -> Chart:
        first, second = self.axes
        return compare_fronts_chart(self.groups, first, second or first)


def _comparison(
    dashboard: DashboardDep, run: _Runs = None, by: Word = "", x: Word = "", y: Word = "", group: Word = ""
) -> RunComparison:
    runs = [dashboard.stores.runs.get(run_id) for run_id in _ids(run)[:MAX_RUNS]]
    if len(runs) < 2:
        latest = runs or dashboard.stores.runs.list(limit=1).items
        others = dashboard.stores.runs.list(problem_id=latest[0].problem_id, limit=DEFAULT_RUNS).items if latest else ()
        runs += [each for each in others if each.id not in {run.id for run in runs}][: DEFAULT_RUNS - len(runs)]
    return RunComparison([RunView(dashboard, each) for each in runs], by, x, y, group)


_ComparisonDep = Annotated[RunComparison, Depends(_comparison)]


@router.get("")
def show_comparison(request: Request, comparison: _ComparisonDep, run: _Runs = None) -> Response:
    views = comparison.views
    ids = tuple(view.run.id for view in views)
    asked = {"by": comparison.by, "x": comparison.x, "y": comparison.y, "group": comparison.group}
    context: dict[str, Any] = {
        "comparison": comparison,
        "runs": [view.run for view in views],
        "added": len(views) - len(_ids(run)),
        "query": address("", **asked, run=ids),
        "max_runs": MAX_RUNS,
        "grouping": GROUPS,
        "settings": [
            {
                "problem": f"{run.problem}@{run.problem_version}",
                "policy": run.policies_of("propose"),
                "mutator": run.policies_of("mutate"),
                "weights": {f"{each.role.value} {each.policy}": each.weight for each in run.ensembles},
                "proposers": ", ".join(run.proposers),
                **run.spec.model_dump(mode="json"),
            }
            for run in (view.run for view in views)
        ],
    }
    return page(request, "compare.html", **context)


def _figure(name: str, comparison: _ComparisonDep) -> Figure:
    if name not in comparison.makers:
        remedy = "Choose runs on the same problem." if not comparison.makers else ""
        raise NotFoundError(f"these runs have no figure {name[:60]!r}.", remedy=remedy)
    runs = ((view.run.id, view.run.revision) for view in comparison.views)
    key = ("compare", name, comparison.by, comparison.x, comparison.y, comparison.group, *runs)
    return Figure(key, comparison.makers[name], f"runs-{name}")


def _ids(runs: list[str] | None) -> list[UUID]:
    return list(dict.fromkeys(parse_id(text, "run") for text in filter(str.strip, runs or [])))


def _label(run: RunRecord) -> str:
    strategy = run.spec.searched_by.replace("_", " ")
    described = (clip(run.name, 40),) if run.name else (run.policy, f"seed {run.spec.seed}", strategy)
    return " · ".join((short(run.id), *described))


add_figure_routes(router, "/{name}", _figure)
