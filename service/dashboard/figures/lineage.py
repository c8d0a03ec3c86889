"""The family tree of a run, laid out on the server."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import SERIES, Cell, Chart, Table, axis, hover, scatter, thinned
from service.dashboard.figures.population import Population

MAX_NODES: Final = 5000
GENERATION: Final = "generation"
_MAX_ANCESTORS: Final = 500
_MAX_OBJECTIVES: Final = 8
_SPINE: Final = {
    "mode": "lines+markers",
    "line": {"color": SERIES[1], "width": 2.5},
    "marker": {"size": 8, "symbol": "diamond", "color": SERIES[1]},
}


def generations(population: Population) -> NDArray[np.int64]:
    """Return the number of first parents between each candidate and its root, shape (n,)."""
    columns = population.columns
    row_of = {number: row for row, number in enumerate(columns.number.tolist())}
    depth = np.zeros(len(columns), dtype=np.int64)
    # A parent's number is smaller than its child's, so that its generation is known in order of number.
    for row in np.argsort(columns.number).tolist():
        parent = row_of.get(int(columns.parent[row]))
        depth[row] = 0 if parent is None else depth[parent] + 1
    return depth


def ancestry(population: Population, number: int) -> list[int]:
    """Return the rows of a candidate and its first parents, from the candidate to its root."""
    columns = population.columns
    row_of = {each: row for row, each in enumerate(columns.number.tolist())}
    rows: list[int] = []
    while (row := row_of.get(number)) is not None and len(rows) < _MAX_ANCESTORS:
        rows.append(row)
        number = int(columns.parent[row])
    return rows


def lineage_chart(population: Population, y: str = "", focus: int | None = None) -> Chart:
    """Draw the family tree: evaluations on x, an objective or the generation on y, lines to first parents."""
    columns, space, front = population.columns, population.problem.space, population.front
    depth = generations(population)
    y = y if y in {*space.names, GENERATION} else space.selected[0].name
    heights = depth.astype(np.float64) if y == GENERATION else columns.rewards[:, space.names.index(y)]
    if focus is None and population.ranked_front:
        focus = int(columns.number[population.ranked_front[0]])
    path = [] if focus is None else ancestry(population, focus)
    drawable = np.flatnonzero(~np.isnan(heights))
    drawn = _thin_nodes(drawable, np.union1d(front, np.array(path, dtype=np.int64)))
    data: list[dict[str, Any]] = []
    if len(drawn):
        data += [_edges(population, drawn, heights), _nodes(population, drawn, heights, depth, y)]
    spine = np.array(path, dtype=np.int64)[~np.isnan(heights[path])]
    if len(spine):
        data.append({**_nodes(population, spine, heights, depth, y), "name": f"ancestors of {focus}", **_SPINE})
    hidden = len(drawable) - len(drawn)
    note = (
        "Each point is a candidate, joined to its first parent, the program that was changed. The thick line leads from"
        " one candidate back to its root. Click a point to open it."
        + (f" {hidden:,} of {len(drawable):,} candidates are not drawn; ancestors and the front are." if hidden else "")
    )
    labels = {objective.name: objective.directed for objective in population.problem.objectives}
    layout = {"xaxis": axis("evaluations"), "yaxis": axis(labels.get(y, y)), "hovermode": "closest"}
    table = _table(population, path, depth)
    return Chart("lineage", "Family tree", note, data, layout, table, height=40, link=population.link)


def _thin_nodes(drawable: NDArray[np.int64], required: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(drawable) <= MAX_NODES:
        return drawable
    required = np.intersect1d(drawable, required)[:MAX_NODES]
    rest = np.setdiff1d(drawable, required)
    return np.union1d(required, rest[thinned(len(rest), max(2, MAX_NODES - len(required)))])


def _edges(population: Population, drawn: NDArray[np.int64], heights: NDArray[np.float64]) -> dict[str, Any]:
    columns = population.columns
    row_of = {number: row for row, number in zip(drawn.tolist(), columns.number[drawn].tolist(), strict=True)}
    x: list[float | None] = []
    y: list[float | None] = []
    for row in drawn.tolist():
        parent = row_of.get(int(columns.parent[row]))
        if parent is not None:
            x += [int(columns.evaluations[parent]), int(columns.evaluations[row]), None]
            y += [float(heights[parent]), float(heights[row]), None]
    line = {"color": "--strong-line", "width": 0.7}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip", "showlegend": False}


def _nodes(
    population: Population, rows: NDArray[np.int64], heights: NDArray[np.float64], depth: NDArray[np.int64], y: str
) -> dict[str, Any]:
    columns = population.columns
    template = hover("candidate %{customdata}", f"{y}: %{{y}}", "generation %{text}")
    more = {"customdata": columns.number[rows], "text": depth[rows]}
    marker = {"size": 4, "color": SERIES[0], "opacity": 0.6}
    at = columns.evaluations[rows]
    return scatter("markers", at, heights[rows], template, name="candidates", marker=marker, **more)


def _table(population: Population, path: list[int], depth: NDArray[np.int64]) -> Table:
    columns, names = population.columns, population.problem.space.names[:_MAX_OBJECTIVES]
    rows: list[list[Cell]] = [
        [
            int(columns.number[row]),
            int(columns.evaluations[row]),
            int(depth[row]),
            columns.failure[row] or "scored",
            *(None if np.isnan(value) else float(value) for value in columns.rewards[row][: len(names)]),
        ]
        for row in path
    ]
    links = tuple(population.link.format(row[0]) for row in rows)
    return Table(("candidate and its first parents", "evaluations", "generation", "outcome", *names), rows, links)
