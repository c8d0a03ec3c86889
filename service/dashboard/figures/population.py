"""The population in reward space, its Pareto front, and the best candidate of each objective."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import SERIES, Cell, Chart, Table, axis, hover, scatter, thinned
from service.dashboard.objectives import shared_objectives
from service.dashboard.scales import Extent
from speciate.domain.arrays import FloatArray
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.problem import Problem
from speciate.domain.reward import large_front
from speciate.schema.runs import RankedCandidate
from speciate.storage.candidates.arrays import CandidateArrays
from speciate.tournaments.statistics.hypervolume import hypervolume_curve

MAX_POINTS: Final = 4000
"""Dominated points drawn: about as many as a screen can separate."""

MAX_AXES: Final = 12
"""Objectives up to which each has an axis of its own; with more, the chart of solved objectives is shown."""

_MAX_VOLUMES: Final = 48


@dataclass(frozen=True)
class Population:
    """The candidates of a run with values derived from them."""

    problem: Problem
    columns: CandidateArrays
    run_url: str
    refuted: tuple[tuple[int, str], ...] = ()  # claims: number of the candidate and name of the target

    @property
    def link(self) -> str:
        return f"{self.run_url}/candidates/{{}}"

    @cached_property
    def targets(self) -> NDArray[np.int64]:
        """Bit masks of the targets that the candidates meet, without refuted ones, shape (n,)."""
        targets = self.columns.targets.copy()
        for i, target in enumerate(self.problem.targets):
            if numbers := [number for number, name in self.refuted if name == target.name]:
                targets[np.isin(self.columns.number, numbers)] &= ~(1 << i)
        return targets

    @cached_property
    def feasible(self) -> NDArray[np.bool_]:
        """True for scored candidates that satisfy every constraint, shape (n,)."""
        feasible = self.columns.scored.copy()
        feasible[feasible] = self.problem.space.violation(self.columns.rewards[feasible]) <= 0.0
        return feasible

    @cached_property
    def varies(self) -> dict[str, bool]:
        """Which objectives take more than one value among the feasible (else the scored) candidates."""
        rewards = self.columns.rewards[self.feasible if self.feasible.any() else self.columns.scored]
        return dict(zip(self.problem.space.names, (rewards != rewards[:1]).any(axis=0).tolist(), strict=True))

    @cached_property
    def front(self) -> NDArray[np.int64]:
        """Rows of the non-dominated candidates without duplicates, ordered by the first objective."""
        rows = self.columns.front(self.problem.space)
        first = self.problem.space.normalise(self.columns.rewards[rows])[:, 0]
        return rows[np.argsort(-first, kind="stable")]

    @cached_property
    def ranked_front(self) -> list[int]:
        """Rows of the front, best candidate first, as in the API."""
        columns, merit = self.columns, self.problem.ranking.merit
        ranks = {
            row: (merit(columns.rewards[row].tolist(), int(self.targets[row])), -columns.number[row])
            for row in self.front.tolist()
        }
        return sorted(ranks, key=ranks.__getitem__, reverse=True)

    def extent(self, objective: Objective) -> Extent:
        """Return the values of an axis; infeasible candidates do not set its range unless all are infeasible."""
        scored, name = self.columns.scored, objective.name
        counted = self.feasible[scored] if self.feasible.any() else scored[scored]
        values = self.columns.rewards[scored, self.problem.space.names.index(name)]
        return Extent(name, values, counted, objective.range)

    @cached_property
    def best_rows(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows at which the best candidate changed, and the best candidate's row from there on, shape (k,) each."""
        rows = np.flatnonzero(self.columns.scored & ~self.columns.duplicate)
        best = self.problem.ranking.best_so_far(self.columns.rewards[rows], self.targets[rows])
        steps = np.flatnonzero((np.diff(best, prepend=-1) != 0) & (best >= 0))
        return rows[steps], rows[best[steps]]

    @cached_property
    def hypervolume_curve(self) -> tuple[NDArray[Any], FloatArray] | None:
        """Evaluations and the hypervolume of the candidates until then, (m,) each; None without a scored candidate."""
        rows = np.flatnonzero(self.columns.scored & ~self.columns.duplicate)
        if not len(rows):
            return None
        last = np.array(thinned(len(rows), _MAX_VOLUMES))
        volumes = hypervolume_curve(self.problem.space.normalise(self.columns.rewards[rows]), (last + 1).tolist())
        evaluations = self.columns.evaluations
        return np.append(evaluations[rows[last]], evaluations[-1]), np.append(volumes, volumes[-1])

    def best_curve(self, objective: Objective) -> tuple[NDArray[Any], FloatArray] | None:
        """Return evaluations and the value of the best candidate until then, continued to the last evaluation.

        None without a feasible candidate.
        """
        steps, best = self.best_rows
        if not len(steps):
            return None
        values = self.columns.rewards[best, self.problem.space.names.index(objective.name)]
        evaluations = self.columns.evaluations
        return np.append(evaluations[steps], evaluations[-1]), np.append(values, values[-1])


def axes(populations: Sequence[Population], x: str, y: str) -> tuple[Objective, Objective | None]:
    """Return the two objectives to draw: the requested ones, else the first that the targets compare.

    An objective in which all candidates are equal is chosen only if no other is left.

    Args:
        populations: Those to draw, which share an objective; the targets of the first one count.
        x: Name of the first objective; unknown ones are ignored.
        y: Name of the second objective.
    """
    shared = shared_objectives([each.problem for each in populations])
    named = {objective.name: objective for objective in shared}
    preferred = sorted(shared, key=lambda objective: not any(each.varies[objective.name] for each in populations))
    first = named.get(x) or next((objective for objective in preferred if objective.name != y), preferred[0])
    second = named.get(y) or next((objective for objective in preferred if objective is not first), None)
    return first, second


def population_chart(population: Population, x: str = "", y: str = "") -> Chart:
    first, second = axes([population], x, y)
    if second is None or second is first:
        return _over_evaluations(population, first)
    columns, names, front = population.columns, population.problem.space.names, population.front
    picked = names.index(first.name), names.index(second.name)
    rest = np.setdiff1d(np.flatnonzero(population.feasible), front)
    infeasible = np.setdiff1d(np.flatnonzero(columns.scored & ~population.feasible), front)
    seed = np.flatnonzero(columns.scored & columns.seed)
    dominated, outside = (rows[thinned(len(rows), MAX_POINTS)] for rows in (rest, infeasible))
    hovertemplate = hover("candidate %{customdata}", f"{first.name}: %{{x}}", f"{second.name}: %{{y}}")
    line = {"shape": "linear", "width": 1, "dash": "dot", "color": SERIES[1]}
    front_look: dict[str, Any] = {"mode": "markers", "line": line}
    if len(population.problem.space.selected) == 2:
        front_look["mode"] = "lines+markers"
    looks: list[tuple[str, NDArray[np.int64], dict[str, Any], dict[str, Any]]] = [
        ("infeasible", outside, {"size": 6, "color": SERIES[6], "opacity": 0.45, "symbol": "x-thin-open"}, {}),
        ("dominated", dominated, {"size": 5, "color": SERIES[0], "opacity": 0.45}, {}),
        ("front", front, {"size": 9, "color": SERIES[1], "symbol": "diamond"}, front_look),
        ("seed program", seed, {"size": 12, "color": SERIES[4], "symbol": "star"}, {}),
    ]
    traces = [
        scatter(
            **{"mode": "markers", **more},
            x=columns.rewards[rows, picked[0]],
            y=columns.rewards[rows, picked[1]],
            hovertemplate=hovertemplate,
            name=f"{name} ({len(rows):,})" if len(rows) > 1 else name,
            customdata=columns.number[rows],
            marker=marker,
        )
        for name, rows, marker, more in looks
        if len(rows)
    ]
    hidden = len(rest) - len(dominated) + len(infeasible) - len(outside)
    note = f"Each point is a candidate; diamonds are the Pareto front. {better(first)}, {better(second)}." + (
        f" {hidden:,} points are not drawn; the run's export has all." if hidden else ""
    )
    layout = {"xaxis": axis(first.directed), "yaxis": axis(second.directed), "hovermode": "closest"}
    extents = {"x": population.extent(first), "y": population.extent(second)} if traces else {}
    table = front_table(population)
    title = "Population in reward space"
    return Chart("population", title, note, traces, layout, table, height=26, link=population.link, extents=extents)


def best_matrix(population: Population, best: RankedCandidate) -> Table:
    """Return, for every objective, the best of the feasible candidates that meet the targets of the best one."""
    columns, problem = population.columns, population.problem
    mask = sum(1 << i for i, target in enumerate(problem.targets) if target.name in best.targets)
    eligible = population.feasible & (population.targets & mask == mask)
    rows: list[list[Cell]] = []
    links: list[str] = []
    for i, objective in enumerate(problem.objectives[:MAX_AXES]):
        rows_left = np.flatnonzero(eligible)
        if not len(rows_left):
            break
        if not objective.aim:
            continue
        values = columns.rewards[rows_left, i]
        end = values.max() if objective.direction is Direction.MAXIMIZE else values.min()
        equals = rows_left[values == end]
        row = equals[large_front(problem.space.normalise(columns.rewards[equals]))[0]]
        number = int(columns.number[row])
        rows.append([objective.name, number, *(float(value) for value in columns.rewards[row][:MAX_AXES])])
        links.append(population.link.format(number))
    directed = (objective.directed for objective in problem.objectives[:MAX_AXES])
    return Table(("best in", "candidate", *directed), rows, tuple(links))


def _over_evaluations(population: Population, objective: Objective) -> Chart:
    columns = population.columns
    values = columns.rewards[:, population.problem.space.names.index(objective.name)]
    rows = np.flatnonzero(columns.scored)
    drawn = rows[thinned(len(rows), MAX_POINTS)]
    template = hover("candidate %{customdata}", f"{objective.name}: %{{y}}", "at %{x} evaluations")
    more = {"customdata": columns.number[drawn], "marker": {"size": 5, "color": SERIES[0], "opacity": 0.5}}
    points = scatter("markers", columns.evaluations[drawn], values[drawn], template, name="candidates", **more)
    data = [points] if len(drawn) else []
    layout = {"xaxis": axis("evaluations"), "yaxis": axis(objective.directed), "hovermode": "closest"}
    extents = {"y": population.extent(objective)} if data else {}
    table = Table(
        ("candidate", "evaluations", objective.name),
        [(int(columns.number[r]), int(columns.evaluations[r]), float(values[r])) for r in rows.tolist()],
    )
    note = f"Each point is a candidate, in order of evaluation. {better(objective)}."
    title = "Population over evaluations"
    return Chart("population", title, note, data, layout, table, height=26, link=population.link, extents=extents)


def front_table(population: Population) -> Table:
    columns = population.columns
    rows = [
        (
            int(columns.number[row]),
            int(columns.evaluations[row]),
            int(columns.island[row]),
            *columns.rewards[row][:MAX_AXES].tolist(),
        )
        for row in population.ranked_front
    ]
    links = tuple(population.link.format(row[0]) for row in rows)
    names = population.problem.space.names[:MAX_AXES]
    return Table(("candidate on the front", "at evaluations", "island", *names), rows, links)


def share_of_range(values: FloatArray, objective: Objective) -> FloatArray:
    """Return values as shares of the objective's declared range, 1 at its better end."""
    low, high = objective.range
    share: FloatArray = (values - low) / (high - low)
    return share if objective.direction is Direction.MAXIMIZE else 1.0 - share


def better(objective: Objective) -> str:
    """Return a phrase for the better end of an objective, such as "cost: lower is better"; none for a record."""
    if not objective.aim:
        return f"{objective.name}: only recorded"
    end = "higher" if objective.direction is Direction.MAXIMIZE else "lower"
    role = "" if objective.role is ObjectiveRole.OBJECTIVE else f" ({objective.role.value})"
    return f"{objective.name}: {end} is better{role}"
