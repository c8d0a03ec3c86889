"""Where is the population in reward space, and what is its front?"""

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
from speciate.storage.candidates.columns import Columns

MOST_POINTS: Final = 4000
"""Dominated points that are drawn: about as many as a screen tells apart."""

_FRONT_POOL: Final = 8192
_STRONG: Final = 64
FEW: Final = 12
"""Objectives up to which each is worth an axis of its own; beyond it, a strip says more."""


@dataclass(frozen=True)
class Population:
    """A run's candidates with what is asked about them again and again.

    Attributes:
        problem: Declares the objectives.
        columns: The candidates.
        run: Address of the run's page.
    """

    problem: Problem
    columns: Columns
    run: str

    @cached_property
    def obeys(self) -> NDArray[np.bool_]:
        """Return which candidates were scored and obey every constraint, shape (n,)."""
        obeys = self.columns.scored.copy()
        obeys[obeys] = self.problem.space.violation(self.columns.rewards[obeys]) <= 0.0
        return obeys

    @cached_property
    def varies(self) -> dict[str, bool]:
        """Return, for every objective, whether the scored candidates differ in it."""
        rewards = self.columns.rewards[self.columns.scored]
        return dict(zip(self.problem.space.names, (rewards != rewards[:1]).any(axis=0).tolist(), strict=True))

    @cached_property
    def front(self) -> NDArray[np.int64]:
        """Return the rows of the candidates that no other one dominates, duplicates left out, by first objective."""
        rows = np.flatnonzero(self.columns.scored & ~self.columns.duplicate)
        if not len(rows):
            return rows
        points = self.problem.space.normalise(self.columns.rewards[rows])
        rows, points = _undefeated(rows, points)
        _, firsts = np.unique(points, axis=0, return_index=True)
        rows, points = rows[firsts], points[firsts]
        # The non-dominated of parts are a superset of those of the whole.
        while len(rows) > _FRONT_POOL:
            keep = np.concatenate([_part(points, at) for at in range(0, len(rows), _FRONT_POOL)])
            if len(keep) == len(rows):
                break
            rows, points = rows[keep], points[keep]
        kept = pareto_front(points)
        return rows[kept][np.argsort(-points[kept][:, 0], kind="stable")]


def axes(of: Population, x: str, y: str) -> tuple[Objective, Objective | None]:
    """Return the two objectives to show: those that are asked for, else the first ones that search improves.

    One in which all candidates are equal says nothing: it is shown only where nothing else is left.
    """
    problem = of.problem
    named = {objective.name: objective for objective in problem.objectives}
    usual = sorted(
        problem.objectives,
        key=lambda objective: (not of.varies[objective.name], objective.role is not ObjectiveRole.OBJECTIVE),
    )
    first = named.get(x, usual[0])
    second = named.get(y) or next((objective for objective in usual if objective is not first), None)
    return first, second


def population(of: Population, x: str = "", y: str = "") -> Chart:
    """Return the population over two objectives; over evaluations where the problem has one alone."""
    first, second = axes(of, x, y)
    if second is None or second is first:
        return _over_evaluations(of, first)
    columns, names = of.columns, of.problem.space.names
    i, j = names.index(first.name), names.index(second.name)
    front = of.front
    rest = np.setdiff1d(np.flatnonzero(columns.scored), front)
    shown = rest[thinned(len(rest), MOST_POINTS)] if len(rest) else rest
    told = hover("candidate %{customdata}", f"{first.name}: %{{x}}", f"{second.name}: %{{y}}")
    traces: list[dict[str, Any]] = []
    if len(shown):
        traces.append(_points("dominated", columns, shown, i, j, told, SERIES[0], size=5, opacity=0.45))
    if len(front):
        traces.append(
            _points("front", columns, front, i, j, told, SERIES[1], size=9, symbol="diamond", mode="lines+markers")
            | {"line": {"shape": "linear", "width": 1, "dash": "dot", "color": SERIES[1]}}
        )
        traces[-1]["mode"] = "lines+markers" if len(of.problem.space.selected) == 2 else "markers"
    seed = np.flatnonzero(columns.scored & columns.seed)
    if len(seed):
        traces.append(_points("seed program", columns, seed, i, j, told, SERIES[4], size=12, symbol="star"))
    left = len(rest) - len(shown)
    note = (
        f"Each point is a candidate; diamonds are the front: nobody is better in everything that search improves."
        f" {better(first)}, {better(second)}."
        + (f" {left:,} dominated points are not drawn; the run's export has all." if left else "")
    )
    layout = {"xaxis": axis(directed(first)), "yaxis": axis(directed(second)), "hovermode": "closest"}
    return Chart(
        "population",
        "Population in reward space",
        note,
        traces,
        layout,
        front_table(of, front),
        height=26,
        link=f"{of.run}/candidates/{{}}",
    )


def best_matrix(of: Population) -> Table:
    """Return, for every objective, who is best in it and what this candidate has in the others."""
    columns = of.columns
    rows: list[list[Cell]] = []
    links: list[str] = []
    obeying = np.flatnonzero(of.obeys)
    for j, objective in enumerate(of.problem.objectives[:FEW]):
        if not len(obeying):
            break
        values = columns.rewards[obeying, j]
        best = obeying[np.argmax(values) if objective.direction is Direction.MAXIMIZE else np.argmin(values)]
        number = int(columns.number[best])
        rows.append([objective.name, number, *(float(value) for value in columns.rewards[best][:FEW])])
        links.append(f"{of.run}/candidates/{number}")
    return Table(("best in", "candidate", *map(directed, of.problem.objectives[:FEW])), rows, tuple(links))


def _over_evaluations(of: Population, objective: Objective) -> Chart:
    columns = of.columns
    j = of.problem.space.names.index(objective.name)
    rows = np.flatnonzero(columns.scored)
    shown = rows[thinned(len(rows), MOST_POINTS)] if len(rows) else rows
    data = []
    if len(shown):
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "candidates",
                "x": columns.evaluations[shown],
                "y": columns.rewards[shown, j],
                "customdata": columns.number[shown],
                "marker": {"size": 5, "color": SERIES[0], "opacity": 0.5},
                "hovertemplate": hover("candidate %{customdata}", f"{objective.name}: %{{y}}", "at %{x} evaluations"),
            }
        )
    layout = {"xaxis": axis("evaluations"), "yaxis": axis(directed(objective)), "hovermode": "closest"}
    table = Table(
        ("candidate", "evaluations", objective.name),
        [(int(columns.number[r]), int(columns.evaluations[r]), float(columns.rewards[r, j])) for r in rows.tolist()],
    )
    note = f"Each point is a candidate, in the order of evaluation. {better(objective)}."
    return Chart(
        "population",
        "Population over evaluations",
        note,
        data,
        layout,
        table,
        height=26,
        link=f"{of.run}/candidates/{{}}",
    )


def _points(
    name: str, columns: Columns, rows: NDArray[np.int64], i: int, j: int, told: str, colour: str, **look: Any
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": look.get("mode", "markers"),
        "name": f"{name} ({len(rows):,})" if len(rows) > 1 else name,
        "x": columns.rewards[rows, i],
        "y": columns.rewards[rows, j],
        "customdata": columns.number[rows],
        "hovertemplate": told,
        "marker": {
            "size": look["size"],
            "color": colour,
            "opacity": look.get("opacity", 1.0),
            "symbol": look.get("symbol", "circle"),
        },
    }


def front_table(of: Population, front: NDArray[np.int64]) -> Table:
    """Return candidates of the front as rows."""
    names = of.problem.space.names[:FEW]
    rows = [
        (
            int(of.columns.number[r]),
            int(of.columns.evaluations[r]),
            int(of.columns.island[r]),
            *of.columns.rewards[r][:FEW].tolist(),
        )
        for r in front.tolist()
    ]
    links = tuple(f"{of.run}/candidates/{row[0]}" for row in rows)
    return Table(("candidate on the front", "at evaluations", "island", *names), rows, links)


def _undefeated(rows: NDArray[np.int64], points: FloatArray) -> tuple[NDArray[np.int64], FloatArray]:
    """Drop what one of a few strong candidates dominates, which is nearly everything, at little cost."""
    for strong in points[np.argsort(-points.sum(axis=1), kind="stable")[:_STRONG]]:
        kept = ~np.all(points <= strong, axis=1) | np.all(points == strong, axis=1)
        rows, points = rows[kept], points[kept]
    return rows, points


def _part(points: FloatArray, at: int) -> NDArray[np.int64]:
    found: NDArray[np.int64] = at + np.flatnonzero(pareto_front(points[at : at + _FRONT_POOL]))
    return found


def better(objective: Objective) -> str:
    """Return in words which end of an objective is the better one."""
    way = "higher" if objective.direction is Direction.MAXIMIZE else "lower"
    return f"{objective.name}: {way} is better" + (
        "" if objective.role is ObjectiveRole.OBJECTIVE else f" ({objective.role.value})"
    )
