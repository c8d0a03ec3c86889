"""The values and charts of a run's page."""

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
    """Return the run id of a path.

    Raises:
        NotFoundError: The path has no UUID.
    """
    try:
        return UUID(run_id)
    except ValueError:
        raise NotFoundError(f"there is no run {run_id[:60]!r}.") from None


RunDep = Annotated[UUID, Depends(known_run)]
Axis = Annotated[str, Query(max_length=80)]
_MAPS: Final = frozenset({"cells", "tradeoffs"})


@dataclass
class RunPage:
    """The values that a run's page shows, read when the template needs them.

    Attributes:
        dashboard: The stores and caches.
        run: The run.
        x: Objective chosen for the first axis, or the empty string.
        y: Objective chosen for the second axis, or the empty string.
        narrow: True for a narrow screen.
    """

    dashboard: DashboardContext
    run: RunRecord
    x: str = ""
    y: str = ""
    narrow: bool = False
    max_advice: ClassVar[int] = 30

    @cached_property
    def problem(self) -> Problem:
        """The problem of the run."""
        return self.dashboard.stores.catalog.problem(self.run.problem_id).definition

    @cached_property
    def population(self) -> Population:
        """The candidates of the run."""
        return self.dashboard.population(self.run.id, self.problem)

    @cached_property
    def axes(self) -> tuple[Objective, Objective | None]:
        """The objectives of the two axes."""
        return axes(self.population, self.x, self.y)

    @cached_property
    def archive(self) -> tuple[EliteRecord, ...]:
        """The elites."""
        return self.dashboard.stores.queries.archive(self.run.id)

    @property
    def advice(self) -> tuple[AdviceRecord, ...]:
        """Advice that the run wrote for its prompts, newest first; empty without guidance."""
        if self.run.spec.guidance is None:
            return ()
        return self.dashboard.stores.queries.advice(self.run.id, limit=self.max_advice).items

    @property
    def many(self) -> bool:
        """True if there are too many objectives for one axis each."""
        return len(self.problem.space.selected) > MAX_AXES

    @property
    def makers(self) -> dict[str, Callable[[], Chart]]:
        """Functions that draw the charts, by chart name, in the order of the page."""
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
        """The charts to show: those with data, and empty ones that may still get some."""
        charts = (make() for make in self.makers.values())
        return [chart for chart in charts if not chart.empty or chart.name not in self._optional]

    @property
    def _optional(self) -> frozenset[str]:
        """Names of charts to leave out if they are empty, because they will stay so."""
        if self.run.state.ended:
            return _MAPS | {"tokens", "failures"}
        # The strategy decides on the cells: after the first candidates, an empty map stays empty.
        return _MAPS if self.run.evaluated else frozenset()

    @property
    def best(self) -> Table | None:
        """The best candidate of each objective; None with one objective or too many for a table."""
        return best_matrix(self.population) if 2 <= len(self.problem.objectives) <= MAX_AXES else None

    def part(self) -> LivePart:
        """Render the live part of the page."""
        text = fragment("run_live.html", view=self, run=self.run)
        return LivePart(text, str(self.run.revision), final=self.run.state.ended)
