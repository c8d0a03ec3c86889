"""The values and charts of a run's page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Final

from fastapi import Depends

from service.dashboard.best_result import BestResult, program_values
from service.dashboard.charts import Chart, Table
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.figures.archive import feature_map_chart, tradeoff_map_chart
from service.dashboard.figures.learning import LEARNING_CHARTS, learning_chart, version_chart
from service.dashboard.figures.parallel import parallel_chart
from service.dashboard.figures.population import MAX_AXES, Population, axes, best_matrix, population_chart
from service.dashboard.figures.progress import best_so_far_chart, failures_chart, throughput_chart, tokens_chart
from service.dashboard.figures.solved import solved_objectives_chart
from service.dashboard.figures.targets import targets_chart
from service.dashboard.live import LivePart
from service.dashboard.pages import fragment
from service.dashboard.parameters import RunIdDep, Word
from speciate.domain.diagnosis import Fault
from speciate.domain.objective import Objective
from speciate.domain.problem import Problem
from speciate.schema.candidates import AdviceRecord, CandidateDetail, EliteRecord, RolloutDetail
from speciate.schema.runs import ActiveEvaluation, RankedCandidate, RunRecord
from speciate.schema.unlocks import UnlockRecord

_MAX_CLAIMS: Final = 500
_MAPS: Final = frozenset({"cells", "tradeoffs"})


@dataclass
class RunView:
    """The values that a run's page shows, read when the template needs them."""

    dashboard: DashboardContext
    run: RunRecord
    x: str = ""
    y: str = ""
    narrow: bool = False
    max_advice: ClassVar[int] = 30

    @cached_property
    def problem(self) -> Problem:
        return self.dashboard.stores.catalog.problem(self.run.problem_id).definition

    @cached_property
    def population(self) -> Population:
        return self.dashboard.populations.of(self.run.id, self.problem)

    @cached_property
    def axes(self) -> tuple[Objective, Objective | None]:
        return axes([self.population], self.x, self.y)

    @cached_property
    def archive(self) -> tuple[EliteRecord, ...]:
        return self.dashboard.stores.queries.archive(self.run.id)

    @cached_property
    def claims(self) -> tuple[UnlockRecord, ...]:
        """Candidates that met a target, cheapest first, confirmed or not."""
        return self.dashboard.stores.unlocks.list(run_id=self.run.id, state=None, limit=_MAX_CLAIMS).items

    @cached_property
    def steps(self) -> tuple[dict[str, Any], ...]:
        return self.dashboard.stores.queries.learning_steps(self.run.id)

    @property
    def unread(self) -> RolloutDetail | None:
        diagnosis = self.run.diagnosis
        if diagnosis is None or diagnosis.fault is not Fault.POLICY:
            return None
        rollout_id = self.candidate(diagnosis.candidate).rollout_id
        return None if rollout_id is None else self.dashboard.stores.queries.rollout(rollout_id)

    @cached_property
    def evaluations(self) -> tuple[ActiveEvaluation, ...]:
        return self.dashboard.evaluations(self.run.id)

    @property
    def advice(self) -> tuple[AdviceRecord, ...]:
        return self.dashboard.stores.queries.advice(self.run.id, limit=self.max_advice).items

    @property
    def many(self) -> bool:
        return len(self.problem.space.selected) > MAX_AXES

    @property
    def makers(self) -> dict[str, Callable[[], Chart]]:
        """Functions that draw the charts, by chart name, in the order of the page: ``targets`` is at its top."""
        charts: dict[str, Callable[[], Chart]] = {"targets": lambda: targets_chart(self.population, self.claims)}
        if self.many:
            charts["solved"] = lambda: solved_objectives_chart(self.population)
        else:
            charts["population"] = lambda: population_chart(self.population, self.x, self.y)
        charts["best"] = lambda: best_so_far_chart(self.population)
        if self.run.spec.learning is not None:
            for name in LEARNING_CHARTS:
                charts[name] = partial(self._learning_chart, name)
            charts["version"] = lambda: version_chart(self.steps)
        charts["throughput"] = lambda: throughput_chart(self.population)
        charts["failures"] = lambda: failures_chart(self.population)
        charts["tokens"] = lambda: tokens_chart(self.population)
        if 3 <= len(self.problem.objectives) <= MAX_AXES:
            charts["parallel"] = lambda: parallel_chart(self.population)
        charts["cells"] = lambda: feature_map_chart(
            self.archive, self.axes[0], f"/runs/{self.run.id}", across=2 if self.narrow else 4
        )
        charts["tradeoffs"] = lambda: tradeoff_map_chart(self.archive, self.axes[0], f"/runs/{self.run.id}")
        return charts

    def _learning_chart(self, name: str) -> Chart:
        return learning_chart(name, self.steps)

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

    @cached_property
    def best_result(self) -> BestResult:
        best: RankedCandidate | EliteRecord | None = self.run.best
        if best is None and self.archive:
            vectors = [tuple(elite.rewards[name] for name in self.problem.space.names) for elite in self.archive]
            best = self.archive[self.problem.ranking.nearest(vectors)]
        return BestResult(self.problem, best, self.run.best is not None, self.claims, self.candidate)

    def candidate(self, number: int) -> CandidateDetail:
        return self.dashboard.stores.queries.candidate_of(self.run.id, number)

    @cached_property
    def seed(self) -> dict[str, float]:
        """Rewards of candidate 1 by objective, if it is a seed program; else empty."""
        columns, names = self.population.columns, self.problem.space.names
        rows = (columns.seed & columns.scored & (columns.number == 1)).nonzero()[0]
        return dict(zip(names, columns.rewards[rows[0]].tolist(), strict=True)) if len(rows) else {}

    @property
    def empty(self) -> str:
        if not self.run.state.ended:
            return "No data yet."
        return f"No data: {(self.run.no_result or 'the run has ended').partition(':')[0]}."

    @property
    def decides(self) -> str:
        """The measure that ranks candidates that meet the same targets."""
        selected = self.problem.space.selected
        if self.problem.weights is not None:
            return "the weighted sum"
        return selected[0].name if len(selected) == 1 else "the distance to the next target"

    @property
    def program(self) -> dict[str, Any] | None:
        """The program of the best result; None before the first rewards."""
        if self.best_result.number is None:
            return None
        return program_values(self.problem, self.candidate(self.best_result.number))

    @cached_property
    def best(self) -> Table | None:
        """The best candidate of each objective among those that meet the targets of the best one.

        None if it would repeat the best one, and with one objective or too many for a table.
        """
        if self.run.best is None or not 2 <= len(self.problem.objectives) <= MAX_AXES:
            return None
        table = best_matrix(self.population, self.run.best)
        return table if any(row[1] != self.run.best.number for row in table.rows) else None

    def part(self) -> LivePart:
        text = fragment("run_live.html", view=self, run=self.run)
        return LivePart(text, str(self.run.revision), final=self.run.state.ended)


def _run_view(run_id: RunIdDep, dashboard: DashboardDep, x: Word = "", y: Word = "", narrow: bool = False) -> RunView:
    return RunView(dashboard, dashboard.stores.runs.get(run_id), x, y, narrow)


RunViewDep = Annotated[RunView, Depends(_run_view)]
