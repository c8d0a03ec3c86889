"""The front over all rewards at once: lines that cross are trade-offs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import DASHES, SERIES, SYMBOLS, Chart, axis, hover, thinned
from service.dashboard.figures.population import FEW, Population, front_table
from speciate.domain.objective import Direction, Objective
from speciate.domain.reward import FloatArray

MOST_LINES: Final = 150


def parallel(of: Population) -> Chart:
    """Return the front as lines over all objectives, each on its declared range with the better end on top."""
    objectives = of.problem.objectives[:FEW]
    front = of.front
    rows = front[thinned(len(front), MOST_LINES)] if len(front) else front
    names = [objective.name for objective in objectives]
    points = of.columns.rewards[rows][:, : len(objectives)]
    shares = np.array([[_oriented(v, o) for v, o in zip(point, objectives, strict=True)] for point in points.tolist()])
    # One trace for all, with gaps between them: a browser draws a hundred traces in a hundred times the time of one.
    data = [_lines(of, names, rows, points, shares)] if len(rows) else []
    for rank, (row, best) in enumerate(_bests(rows, shares).items()):
        i = int(np.flatnonzero(rows == row)[0])
        bold = {"width": 2.6, "color": SERIES[(rank + 1) % len(SERIES)], "dash": DASHES[rank % len(DASHES)]}
        told = ", ".join(names[j] for j in best[:3]) + (" …" if len(best) > 3 else "")
        look = {"line": bold, "marker": {"size": 8, "symbol": SYMBOLS[(rank + 1) % len(SYMBOLS)]}, "opacity": 1.0}
        alone = _lines(of, names, rows[i : i + 1], points[i : i + 1], shares[i : i + 1])
        data.append({**alone, **look, "name": f"best {told}", "showlegend": True})
    layout = {
        "xaxis": {"type": "category", "showgrid": True},
        "yaxis": axis("share of the declared range, better is up"),
        "hovermode": "closest",
    }
    note = "Each line is a candidate of the front. Lines that cross are trade-offs."
    return Chart(
        "parallel",
        "Front over all rewards",
        note,
        data,
        layout,
        front_table(of, front),
        height=22,
        link=f"{of.run}/candidates/{{}}",
    )


def _lines(
    of: Population, names: list[str], rows: NDArray[np.int64], raw: FloatArray, shares: FloatArray
) -> dict[str, Any]:
    """Return candidates as lines, shapes (n,), (n, d) and (n, d), with a gap after each."""
    numbers = of.columns.number[rows].tolist()
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [*names, None] * len(numbers),
        "y": [value for share in shares.tolist() for value in (*share, None)],
        "customdata": [number for number in numbers for _ in (*names, None)],
        "text": [text for point in raw.tolist() for text in (*(f"{value:.4g}" for value in point), "")],
        "hovertemplate": hover("candidate %{customdata}", "%{x}: %{text}"),
        "line": {"color": SERIES[0], "width": 1},
        "marker": {"size": 4},
        "opacity": 0.4,
        "showlegend": False,
    }


def _bests(rows: NDArray[np.int64], shares: FloatArray) -> dict[int, list[int]]:
    """Return the candidates that are best in something, with the positions of these objectives."""
    found: dict[int, list[int]] = {}
    for j in range(shares.shape[1] if len(rows) else 0):
        found.setdefault(int(rows[np.argmax(shares[:, j])]), []).append(j)
    return found


def _oriented(value: float, objective: Objective) -> float:
    low, high = objective.range
    part = (value - low) / (high - low)
    return part if objective.direction is Direction.MAXIMIZE else 1.0 - part
