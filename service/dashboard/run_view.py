"""A run with the values and charts that its pages show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, ClassVar, Final
from uuid import UUID

from fastapi import Depends, Query

from service.dashboard.charts import Chart, Table
from service.dashboard.context import DashboardContext
from service.dashboard.figures.archive import feature_map_chart, tradeoff_map_chart
from service.dashboard.figures.parallel import parallel_chart
from service.dashboard.figures.population import MAX_AXES, Population, axes, best_matrix, population_chart
from service.dashboard.figures.progress import best_so_far_chart, failures_chart, throughput_chart, tokens_chart
from service.dashboard.figures.solved import solved_objectives_chart
from service.dashboard.live import LivePart
from service.dashboard.pages import fragment
from speciate.domain.errors import NotFoundError
from speciate.domain.objective import Objective
from speciate.domain.problem import Problem
from speciate.ports.records.candidates import AdviceRecord, EliteRecord
from speciate.ports.records.runs import RunRecord


async def known_run(run_id: str) -> UUID:
    """Return the id in a path; whatever is none is one that nothing has."""
    try:
        return UUID(run_id)
    except ValueError:
        raise NotFoundError(f"there is no run {run_id[:60]!r}.") from None


RunDep = Annotated[UUID, Depends(known_run)]
Axis = Annotated[str, Query(max_length=80)]
_MAPS: Final = frozenset({"cells", "tradeoffs"})


@dataclass
class RunView:
    """A run with everything that its page shows of it; nothing is read before it is needed.

    Attributes:
        dashboard: Where it is read.
        run: The run.
        x: Objective that was chosen for the first axis, or the empty string.
        y: The same for the second.
        narrow: Whether there is room for little beside each other.
    """

    dashboard: DashboardContext
    run: RunRecord
    x: str = ""
    y: str = ""
    narrow: bool = False
    most_advice: ClassVar[int] = 30

    @cached_property
    def problem(self) -> Problem:
        """The problem, which declares the objectives."""
        return self.dashboard.stores.catalog.problem(self.run.problem_id).definition

    @cached_property
    def population(self) -> Population:
        """The candidates."""
        return self.dashboard.population(self.run.id, self.problem)

    @cached_property
    def axes(self) -> tuple[Objective, Objective | None]:
        """The objectives of the first and the second axis."""
        return axes(self.population, self.x, self.y)

    @cached_property
    def archive(self) -> tuple[EliteRecord, ...]:
        """The holders of cells."""
        return self.dashboard.stores.queries.archive(self.run.id)

    @property
    def advice(self) -> tuple[AdviceRecord, ...]:
        """What it errors itself, newest first; nothing where it writes none."""
        if self.run.spec.guidance is None:
            return ()
        return self.dashboard.stores.queries.advice(self.run.id, limit=self.most_advice).items

    @property
    def many(self) -> bool:
        """Whether there are too many rewards for an axis each."""
        return len(self.problem.space.selected) > MAX_AXES

    @property
    def makers(self) -> dict[str, Callable[[], Chart]]:
        """The charts of the run's page, by name, in the order in which they stand there."""
        found: dict[str, Callable[[], Chart]] = {}
        if self.many:
            found["solved"] = lambda: solved_objectives_chart(self.population)
        else:
            found["population"] = lambda: population_chart(self.population, self.x, self.y)
        found["best"] = lambda: best_so_far_chart(self.population)
        if 3 <= len(self.problem.objectives) <= MAX_AXES:
            found["parallel"] = lambda: parallel_chart(self.population)
        found["throughput"] = lambda: throughput_chart(self.population)
        found["failures"] = lambda: failures_chart(self.population)
        found["tokens"] = lambda: tokens_chart(self.population)
        found["cells"] = lambda: feature_map_chart(
            self.archive, self.axes[0], f"/runs/{self.run.id}", across=2 if self.narrow else 4
        )
        found["tradeoffs"] = lambda: tradeoff_map_chart(self.archive, self.axes[0], f"/runs/{self.run.id}")
        return found

    @cached_property
    def charts(self) -> list[Chart]:
        """The charts that there is something to say with; nothing is made before the page's first part is sent."""
        charts = (make() for make in self.makers.values())
        return [chart for chart in charts if not chart.empty or chart.name not in self._missing]

    @property
    def _missing(self) -> frozenset[str]:
        """What a run may lack for good: at its end all of that, before it what its first candidates did not bring."""
        if self.run.state.ended:
            return _MAPS | {"tokens", "failures"}
        # Features are the strategy's business: a run without such cells has no map of them.
        return _MAPS if self.run.evaluated else frozenset()

    @property
    def best(self) -> Table | None:
        """Who is best in what, where there are several rewards, and few enough for a table."""
        return best_matrix(self.population) if 2 <= len(self.problem.objectives) <= MAX_AXES else None

    def part(self) -> LivePart:
        """Return what changes on the page."""
        text = fragment("run_live.html", view=self, run=self.run)
        return LivePart(text, str(self.run.revision), final=self.run.state.ended)
