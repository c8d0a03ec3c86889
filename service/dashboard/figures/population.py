"""The population in reward space, its Pareto front, and the best candidate of each objective."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import SERIES, Cell, Chart, Table, axis, hover, thinned
from service.dashboard.formatting import directed
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.problem import Problem
from speciate.domain.reward import FloatArray, pareto_front
from speciate.storage.candidates.columns import CandidateColumns

MAX_POINTS: Final = 4000
"""Dominated points drawn: about as many as a screen can separate."""

MAX_AXES: Final = 12
"""Objectives up to which each has an axis of its own; with more, the chart of solved objectives is shown."""

_FRONT_POOL: Final = 8192
_STRONG: Final = 64


@dataclass(frozen=True)
class Population:
    """The candidates of a run with values derived from them.

    Attributes:
        problem: Declares the objectives.
        columns: The candidates.
        run_url: Path of the run's page.
    """

    problem: Problem
    columns: CandidateColumns
    run_url: str

    @property
    def link(self) -> str:
        """The URL of a candidate, with ``{}`` for its number."""
        return f"{self.run_url}/candidates/{{}}"

    @cached_property
    def feasible(self) -> NDArray[np.bool_]:
        """True for scored candidates that satisfy every constraint, shape (n,)."""
        feasible = self.columns.scored.copy()
        feasible[feasible] = self.problem.space.violation(self.columns.rewards[feasible]) <= 0.0
        return feasible

    @cached_property
    def varies(self) -> dict[str, bool]:
        """For every objective, True if the scored candidates differ in it."""
        rewards = self.columns.rewards[self.columns.scored]
        return dict(zip(self.problem.space.names, (rewards != rewards[:1]).any(axis=0).tolist(), strict=True))

    @cached_property
    def front(self) -> NDArray[np.int64]:
        """Rows of the non-dominated candidates without duplicates, ordered by the first objective."""
        rows = np.flatnonzero(self.columns.scored & ~self.columns.duplicate)
        if not len(rows):
            return rows
        points = self.problem.space.normalise(self.columns.rewards[rows])
        rows, points = _drop_dominated_by_strong(rows, points)
        _, firsts = np.unique(points, axis=0, return_index=True)
        rows, points = rows[firsts], points[firsts]
        # The union of the fronts of parts contains the front of the whole.
        while len(rows) > _FRONT_POOL:
            keep = np.concatenate([_front_of_part(points, at) for at in range(0, len(rows), _FRONT_POOL)])
            if len(keep) == len(rows):
                break
            rows, points = rows[keep], points[keep]
        kept = pareto_front(points)
        return rows[kept][np.argsort(-points[kept][:, 0], kind="stable")]

    def improvements(self, objective: Objective) -> tuple[NDArray[np.int64], FloatArray] | None:
        """Return the rows at which the best feasible value improved, and that value, shape (k,) each.

        None without a feasible candidate.
        """
        rows = np.flatnonzero(self.feasible)
        if not len(rows):
            return None
        values = self.columns.rewards[rows, self.problem.space.names.index(objective.name)]
        accumulate = np.maximum if objective.direction is Direction.MAXIMIZE else np.minimum
        best = accumulate.accumulate(values)
        steps = np.flatnonzero(np.concatenate([[True], best[1:] != best[:-1]]))
        return rows[steps], best[steps]

    def best_curve(self, objective: Objective) -> tuple[NDArray[Any], FloatArray] | None:
        """Return evaluations and the best feasible value at them, continued to the last evaluation.

        None without a feasible candidate.
        """
        found = self.improvements(objective)
        if found is None:
            return None
        rows, best = found
        evaluations = self.columns.evaluations
        return np.append(evaluations[rows], evaluations[-1]), np.append(best, best[-1])


def axes(population: Population, x: str, y: str) -> tuple[Objective, Objective | None]:
    """Return the two objectives to draw: the requested ones, else the first that the search improves.

    An objective in which all candidates are equal is chosen only if no other is left.
    """
    problem = population.problem
    named = {objective.name: objective for objective in problem.objectives}
    preferred = sorted(
        problem.objectives,
        key=lambda objective: (not population.varies[objective.name], objective.role is not ObjectiveRole.OBJECTIVE),
    )
    first = named.get(x, preferred[0])
    second = named.get(y) or next((objective for objective in preferred if objective is not first), None)
    return first, second


def population_chart(population: Population, x: str = "", y: str = "") -> Chart:
    """Draw the population over two objectives, or over evaluations if the problem has only one."""
    first, second = axes(population, x, y)
    if second is None or second is first:
        return _over_evaluations(population, first)
    columns, names, front = population.columns, population.problem.space.names, population.front
    picked = names.index(first.name), names.index(second.name)
    rest = np.setdiff1d(np.flatnonzero(columns.scored), front)
    shown = rest[thinned(len(rest), MAX_POINTS)] if len(rest) else rest
    hovertemplate = hover("candidate %{customdata}", f"{first.name}: %{{x}}", f"{second.name}: %{{y}}")
    seed = np.flatnonzero(columns.scored & columns.seed)
    line = {"shape": "linear", "width": 1, "dash": "dot", "color": SERIES[1]}
    front_look: dict[str, Any] = {"mode": "markers", "line": line}
    if len(population.problem.space.selected) == 2:
        front_look["mode"] = "lines+markers"
    looks: list[tuple[str, NDArray[np.int64], dict[str, Any], dict[str, Any]]] = [
        ("dominated", shown, {"size": 5, "color": SERIES[0], "opacity": 0.45}, {}),
        ("front", front, {"size": 9, "color": SERIES[1], "symbol": "diamond"}, front_look),
        ("seed program", seed, {"size": 12, "color": SERIES[4], "symbol": "star"}, {}),
    ]
    traces = [
        {**_markers(name, columns, rows, picked, marker), "hovertemplate": hovertemplate, **more}
        for name, rows, marker, more in looks
        if len(rows)
    ]
    hidden = len(rest) - len(shown)
    note = f"Each point is a candidate; diamonds are the Pareto front. {better(first)}, {better(second)}." + (
        f" {hidden:,} dominated points are not drawn; the run's export has all." if hidden else ""
    )
    layout = {"xaxis": axis(directed(first)), "yaxis": axis(directed(second)), "hovermode": "closest"}
    table = front_table(population, front)
    title = "Population in reward space"
    return Chart("population", title, note, traces, layout, table, height=26, link=population.link)


def best_matrix(population: Population) -> Table:
    """Return the best feasible candidate of every objective, with its values in all objectives."""
    columns, objectives = population.columns, population.problem.objectives[:MAX_AXES]
    rows: list[list[Cell]] = []
    links: list[str] = []
    for objective in objectives:
        found = population.improvements(objective)
        if found is None:
            break
        best = found[0][-1]
        number = int(columns.number[best])
        rows.append([objective.name, number, *(float(value) for value in columns.rewards[best][:MAX_AXES])])
        links.append(population.link.format(number))
    return Table(("best in", "candidate", *map(directed, objectives)), rows, tuple(links))


def _over_evaluations(population: Population, objective: Objective) -> Chart:
    columns = population.columns
    values = columns.rewards[:, population.problem.space.names.index(objective.name)]
    rows = np.flatnonzero(columns.scored)
    shown = rows[thinned(len(rows), MAX_POINTS)] if len(rows) else rows
    data = []
    if len(shown):
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "candidates",
                "x": columns.evaluations[shown],
                "y": values[shown],
                "customdata": columns.number[shown],
                "marker": {"size": 5, "color": SERIES[0], "opacity": 0.5},
                "hovertemplate": hover("candidate %{customdata}", f"{objective.name}: %{{y}}", "at %{x} evaluations"),
            }
        )
    layout = {"xaxis": axis("evaluations"), "yaxis": axis(directed(objective)), "hovermode": "closest"}
    table = Table(
        ("candidate", "evaluations", objective.name),
        [(int(columns.number[r]), int(columns.evaluations[r]), float(values[r])) for r in rows.tolist()],
    )
    note = f"Each point is a candidate, in order of evaluation. {better(objective)}."
    title = "Population over evaluations"
    return Chart("population", title, note, data, layout, table, height=26, link=population.link)


def _markers(
    name: str, columns: CandidateColumns, rows: NDArray[np.int64], picked: tuple[int, int], marker: dict[str, Any]
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": f"{name} ({len(rows):,})" if len(rows) > 1 else name,
        "x": columns.rewards[rows, picked[0]],
        "y": columns.rewards[rows, picked[1]],
        "customdata": columns.number[rows],
        "marker": marker,
    }


def front_table(population: Population, front: NDArray[np.int64]) -> Table:
    """Return candidates of the front as rows."""
    columns = population.columns
    rows = [
        (
            int(columns.number[row]),
            int(columns.evaluations[row]),
            int(columns.island[row]),
            *columns.rewards[row][:MAX_AXES].tolist(),
        )
        for row in front.tolist()
    ]
    links = tuple(population.link.format(row[0]) for row in rows)
    names = population.problem.space.names[:MAX_AXES]
    return Table(("candidate on the front", "at evaluations", "island", *names), rows, links)


def better(objective: Objective) -> str:
    """Return a phrase for the better end of an objective, such as "cost: lower is better"."""
    end = "higher" if objective.direction is Direction.MAXIMIZE else "lower"
    role = "" if objective.role is ObjectiveRole.OBJECTIVE else f" ({objective.role.value})"
    return f"{objective.name}: {end} is better{role}"


def _drop_dominated_by_strong(rows: NDArray[np.int64], points: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
    """Drop points that one of a few strong candidates dominates: nearly all of them, at little cost."""
    for strong in points[np.argsort(-points.sum(axis=1), kind="stable")[:_STRONG]]:
        kept = ~np.all(points <= strong, axis=1) | np.all(points == strong, axis=1)
        rows, points = rows[kept], points[kept]
    return rows, points


def _front_of_part(points: FloatArray, start: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = start + np.flatnonzero(pareto_front(points[start : start + _FRONT_POOL]))
    return found
