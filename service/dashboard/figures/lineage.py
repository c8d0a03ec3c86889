"""Where do candidates come from? The family tree of a run, laid out on the server."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import SERIES, Cell, Chart, Table, axis, hover, thinned
from service.dashboard.figures.population import Population
from service.dashboard.formatting import directed

MOST_NODES: Final = 5000
GENERATION: Final = "generation"
_MOST_ANCESTORS: Final = 500


def generations(of: Population) -> NDArray[np.int64]:
    """Return how many first parents lie between each candidate and a founder, shape (n,)."""
    parent = of.columns.parent
    place = {number: row for row, number in enumerate(of.columns.number.tolist())}
    found = np.zeros(len(of.columns), dtype=np.int64)
    # A parent's number is below its child's: in order of number it is known already.
    for row in np.argsort(of.columns.number).tolist():
        above = place.get(int(parent[row]))
        found[row] = 0 if above is None else found[above] + 1
    return found


def ancestry(of: Population, number: int) -> list[int]:
    """Return the rows of a candidate and its first parents, from the candidate to its founder."""
    place = {known: row for row, known in enumerate(of.columns.number.tolist())}
    found: list[int] = []
    while (row := place.get(number)) is not None and len(found) < _MOST_ANCESTORS:
        found.append(row)
        number = int(of.columns.parent[row])
    return found


def lineage(of: Population, y: str = "", focus: int | None = None) -> Chart:
    """Return the family tree: evaluations to the right, an objective or the generation upwards, lines to first parents.

    Args:
        of: The candidates.
        y: Name of an objective, or ``generation``; the first objective by default.
        focus: Number of the candidate whose ancestors are shown in front; by default the best in the first objective.
    """
    columns = of.columns
    depth = generations(of)
    objectives = {objective.name: objective for objective in of.problem.objectives}
    names = of.problem.space.names
    y = y if y in {*names, GENERATION} else of.problem.space.selected[0].name
    heights = depth.astype(np.float64) if y == GENERATION else columns.rewards[:, names.index(y)]
    front = of.front
    if focus is None and len(front):
        focus = int(columns.number[front[0]])
    path = [] if focus is None else ancestry(of, focus)
    drawn = np.flatnonzero(~np.isnan(heights))
    kept = _kept(drawn, np.union1d(front, np.array(path, dtype=np.int64)))
    data: list[dict[str, Any]] = []
    if len(kept):
        data += [_edges(of, kept, heights), _nodes(of, kept, heights, depth, y)]
    spine = [row for row in path if not np.isnan(heights[row])]
    if spine:
        data.append(
            _nodes(of, np.array(spine), heights, depth, y)
            | {
                "name": f"ancestors of {focus}",
                "mode": "lines+markers",
                "line": {"color": SERIES[1], "width": 2.5},
                "marker": {"size": 8, "symbol": "diamond", "color": SERIES[1]},
            }
        )
    left = len(drawn) - len(kept)
    note = (
        "Each point is a candidate, joined to its first parent, the one that was changed. The strong line leads from"
        " one candidate back to its founder; click on a point to open it."
        + (f" {left:,} of {len(drawn):,} candidates are not drawn; ancestors and the front are." if left else "")
    )
    layout = {
        "xaxis": axis("evaluations"),
        "yaxis": axis(directed(objectives[y]) if y in objectives else y),
        "hovermode": "closest",
    }
    table = _table(of, path, depth)
    return Chart("lineage", "Family tree", note, data, layout, table, height=40, link=f"{of.run}/candidates/{{}}")


def _kept(drawn: NDArray[np.int64], wanted: NDArray[np.int64]) -> NDArray[np.int64]:
    if len(drawn) <= MOST_NODES:
        return drawn
    wanted = np.intersect1d(drawn, wanted)[:MOST_NODES]
    rest = np.setdiff1d(drawn, wanted)
    return np.union1d(wanted, rest[thinned(len(rest), max(2, MOST_NODES - len(wanted)))])


def _edges(of: Population, kept: NDArray[np.int64], heights: NDArray[np.float64]) -> dict[str, Any]:
    columns = of.columns
    place = {number: row for row, number in zip(kept.tolist(), columns.number[kept].tolist(), strict=True)}
    x: list[float | None] = []
    y: list[float | None] = []
    for row in kept.tolist():
        above = place.get(int(columns.parent[row]))
        if above is not None:
            x += [int(columns.evaluations[above]), int(columns.evaluations[row]), None]
            y += [float(heights[above]), float(heights[row]), None]
    line = {"color": "--strong-line", "width": 0.7}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip", "showlegend": False}


def _nodes(
    of: Population, rows: NDArray[np.int64], heights: NDArray[np.float64], depth: NDArray[np.int64], y: str
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "candidates",
        "x": of.columns.evaluations[rows],
        "y": heights[rows],
        "customdata": of.columns.number[rows],
        "text": depth[rows],
        "hovertemplate": hover("candidate %{customdata}", f"{y}: %{{y}}", "generation %{text}"),
        "marker": {"size": 4, "color": SERIES[0], "opacity": 0.6},
    }


def _table(of: Population, path: list[int], depth: NDArray[np.int64]) -> Table:
    names = of.problem.space.names[:8]
    rows: list[list[Cell]] = [
        [
            int(of.columns.number[row]),
            int(of.columns.evaluations[row]),
            int(depth[row]),
            of.columns.failure[row] or "scored",
            *(None if np.isnan(value) else float(value) for value in of.columns.rewards[row][: len(names)]),
        ]
        for row in path
    ]
    links = tuple(f"{of.run}/candidates/{row[0]}" for row in rows)
    return Table(("candidate, then its first parents", "evaluations", "generation", "outcome", *names), rows, links)
