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
    names = [objective.name for objective in objectives]
    points = of.columns.rewards[front][:, : len(objectives)]
    shares = np.stack([_oriented(points[:, j], objective) for j, objective in enumerate(objectives)], axis=1)
    bests = _bests(shares)
    # Who is best in something is drawn, however many there are.
    kept = sorted({*thinned(len(front), MOST_LINES), *bests})
    # One trace for all, with gaps between them: a browser draws a hundred traces in a hundred times the time of one.
    data = [_lines(of, names, front[kept], points[kept], shares[kept])] if kept else []
    for rank, (i, best) in enumerate(bests.items()):
        bold = {"width": 2.6, "color": SERIES[(rank + 1) % len(SERIES)], "dash": DASHES[rank % len(DASHES)]}
        told = ", ".join(names[j] for j in best[:3]) + (" …" if len(best) > 3 else "")
        look = {"line": bold, "marker": {"size": 8, "symbol": SYMBOLS[(rank + 1) % len(SYMBOLS)]}, "opacity": 1.0}
        alone = _lines(of, names, front[i : i + 1], points[i : i + 1], shares[i : i + 1])
        data.append({**alone, **look, "name": f"best {told}", "showlegend": True})
    layout = {
        "xaxis": {"type": "category", "showgrid": True},
        "yaxis": axis("share of the declared range, better is up"),
        "hovermode": "closest",
    }
    left = len(front) - len(kept)
    note = "Each line is a candidate of the front. Lines that cross are trade-offs." + (
        f" {left:,} candidates of the front are not drawn; all are in the download." if left else ""
    )
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


def _bests(shares: FloatArray) -> dict[int, list[int]]:
    """Return which of some candidates are best in something, with the positions of these objectives."""
    found: dict[int, list[int]] = {}
    for j in range(shares.shape[1] if len(shares) else 0):
        found.setdefault(int(np.argmax(shares[:, j])), []).append(j)
    return found


def _oriented(values: FloatArray, objective: Objective) -> FloatArray:
    low, high = objective.range
    part: FloatArray = (values - low) / (high - low)
    return part if objective.direction is Direction.MAXIMIZE else 1.0 - part
