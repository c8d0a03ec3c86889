"""The values and charts of a run's pages."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, Final

from fastapi import Depends

from service.dashboard.best_result import BestResult, program_values
from service.dashboard.charts import Chart
from service.dashboard.context import DashboardContext, DashboardDep
from service.dashboard.figures.learning import LEARNING_CHARTS, learning_chart
from service.dashboard.figures.population import MAX_AXES, Population, axes, parallel_chart, population_chart
from service.dashboard.figures.progress import failures_chart, progress_chart
from service.dashboard.figures.solved import solved_objectives_chart
from service.dashboard.live import LivePart
from service.dashboard.pages import fragment
from service.dashboard.parameters import RunIdDep, Word
from speciate.domain.diagnosis import Fault
from speciate.domain.errors import NotFoundError
from speciate.domain.objective import Objective
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.run import RunState
from speciate.schema.candidates import AdviceRecord, ArchiveCell, CandidateDetail, RolloutDetail
from speciate.schema.runs import ActiveEvaluation, RunRecord
from speciate.schema.unlocks import UnlockRecord

_MAX_CLAIMS: Final = 500
_OVERVIEW: Final = ("tradeoffs", "progress")


@dataclass
class RunView:
    """The values that a run's pages show, read when a template needs them."""

    dashboard: DashboardContext
    run: RunRecord
    x: str = ""
    y: str = ""
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
    def archive(self) -> tuple[ArchiveCell, ...]:
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
        return self.rollout_of(self.candidate(diagnosis.candidate))

    @property
    def asked(self) -> RolloutDetail | None:
        """Prompt and completion of the best result."""
        number = self.best_result.number
        return None if number is None else self.rollout_of(self.candidate(number))

    def rollout_of(self, candidate: CandidateDetail) -> RolloutDetail | None:
        return self.dashboard.stores.queries.rollout(candidate.rollout_id) if candidate.rollout_id else None

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
        """Functions that draw the charts, by chart name, in the order of the pages."""
        charts: dict[str, Callable[[], Chart]] = {}
        if len(self.problem.space.selected) > 1:
            charts["tradeoffs"] = self._tradeoffs
        charts["progress"] = lambda: progress_chart(self.population, self.claims, self.run.best)
        first, second = self.axes
        if not self.many and second is not None and second is not first:
            charts["population"] = lambda: population_chart(self.population, first, second)
        charts["failures"] = lambda: failures_chart(self.population)
        if self.run.spec.learning is not None:
            charts |= {name: partial(learning_chart, name, self.steps) for name in LEARNING_CHARTS}
        return charts

    def _tradeoffs(self) -> Chart:
        objectives = self.problem.space.selected
        if self.many:
            chart = solved_objectives_chart(self.population)
        elif len(objectives) == 2:
            chart = population_chart(self.population, objectives[0], objectives[1])
            data = [trace for trace in chart.data if not trace["name"].startswith("infeasible")]
            chart = replace(chart, title="Trade-offs", height=14, data=data)
        else:
            chart = parallel_chart(self.population)
        return replace(chart, name="tradeoffs")

    def charts(self, tab: str) -> list[Chart]:
        """Return the charts of ``overview``, ``population`` or ``learning``; those without data only while it runs."""
        tabs = {"overview": {*_OVERVIEW}, "learning": {*LEARNING_CHARTS}}
        tabs["population"] = {*self.makers}.difference(*tabs.values())
        made = [make() for name, make in self.makers.items() if name in tabs[tab]]
        return [chart for chart in made if not chart.empty or self.run.state is RunState.RUNNING]

    @cached_property
    def best_result(self) -> BestResult:
        best = self.run.best
        if best is None and self.archive:
            elites = [cell.elite for cell in self.archive]
            vectors = [tuple(elite.rewards[name] for name in self.problem.space.names) for elite in elites]
            best = elites[self.problem.ranking.nearest(vectors)]
        return BestResult(self.problem, best, self.run.best is not None, self.claims, self.seed, self.candidate)

    def candidate(self, number: int) -> CandidateDetail:
        return self.dashboard.stores.queries.candidate_of(self.run.id, number)

    @cached_property
    def seed(self) -> dict[str, float]:
        """Rewards of candidate 1 if it is a seed program; else empty.

        Not from ``population``, which takes long to read: the first part of the page waits for this.
        """
        try:
            first = self.candidate(1)
        except NotFoundError:
            return {}
        seeded = first.measured if first.role is PolicyRole.SEED else {}
        return {name: value for name, value in seeded.items() if value is not None}

    @property
    def expected_end(self) -> datetime | None:
        """Time at which a limit is reached at the average rate so far."""
        left = self.run.seconds_to_go
        return None if left is None else datetime.now(UTC) + timedelta(seconds=left)

    @property
    def program(self) -> dict[str, Any] | None:
        """The program of the best result; None before the first rewards."""
        if self.best_result.number is None:
            return None
        return program_values(self.problem, self.candidate(self.best_result.number))

    def part(self) -> LivePart:
        text = fragment("run_live.html", view=self, run=self.run) + fragment("run_parts.html", view=self, run=self.run)
        return LivePart(text, str(self.run.revision), final=self.run.state.ended)


def _run_view(run_id: RunIdDep, dashboard: DashboardDep, x: Word = "", y: Word = "") -> RunView:
    return RunView(dashboard, dashboard.stores.runs.get(run_id), x, y)


RunViewDep = Annotated[RunView, Depends(_run_view)]
