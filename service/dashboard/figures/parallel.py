"""Parallel coordinates of the Pareto front: crossing lines are trade-offs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import DASHES, SERIES, SYMBOLS, Chart, axis, hover, scatter, thinned
from service.dashboard.figures.population import MAX_AXES, Population, front_table, share_of_range
from speciate.domain.arrays import FloatArray

MAX_LINES: Final = 150


def parallel_chart(population: Population) -> Chart:
    """Draw the front as lines over all objectives, each on its declared range with the better end on top."""
    objectives = population.problem.objectives[:MAX_AXES]
    names = [objective.name for objective in objectives]
    front = population.front
    points = population.columns.rewards[front][:, : len(objectives)]
    shares = np.stack([share_of_range(points[:, j], objective) for j, objective in enumerate(objectives)], axis=1)
    bests = _best_rows(shares)
    drawn = sorted({*thinned(len(front), MAX_LINES), *bests})
    # One trace with gaps for all lines: a browser needs a hundred times as long for a hundred traces.
    data = [_lines(population, names, front[drawn], points[drawn], shares[drawn])] if drawn else []
    for rank, (i, best) in enumerate(bests.items()):
        line = {"width": 2.6, "color": SERIES[(rank + 1) % len(SERIES)], "dash": DASHES[rank % len(DASHES)]}
        label = ", ".join(names[j] for j in best[:3]) + (" …" if len(best) > 3 else "")
        look = {"line": line, "marker": {"size": 8, "symbol": SYMBOLS[(rank + 1) % len(SYMBOLS)]}, "opacity": 1.0}
        single = _lines(population, names, front[i : i + 1], points[i : i + 1], shares[i : i + 1])
        data.append({**single, **look, "name": f"best {label}", "showlegend": True})
    layout = {
        "xaxis": {"type": "category", "showgrid": True},
        "yaxis": axis("share of the declared range, better is up"),
        "hovermode": "closest",
    }
    hidden = len(front) - len(drawn)
    note = "Each line is a candidate of the front. Crossing lines are trade-offs." + (
        f" {hidden:,} candidates of the front are not drawn; the download has all." if hidden else ""
    )
    table = front_table(population)
    title = "Front over all objectives"
    return Chart("parallel", title, note, data, layout, table, height=22, link=population.link)


def _lines(
    population: Population, names: list[str], rows: NDArray[np.int64], raw: FloatArray, shares: FloatArray
) -> dict[str, Any]:
    """Return candidates as lines, shapes (n,), (n, d) and (n, d), with a gap after each."""
    numbers = population.columns.number[rows].tolist()
    return scatter(
        "lines+markers",
        [*names, None] * len(numbers),
        [value for share in shares.tolist() for value in (*share, None)],
        hover("candidate %{customdata}", "%{x}: %{text}"),
        customdata=[number for number in numbers for _ in (*names, None)],
        text=[text for point in raw.tolist() for text in (*(f"{value:.4g}" for value in point), "")],
        line={"color": SERIES[0], "width": 1},
        marker={"size": 4},
        opacity=0.4,
        showlegend=False,
    )


def _best_rows(shares: FloatArray) -> dict[int, list[int]]:
    """Return the rows that are best in an objective, each with the positions of these objectives."""
    objectives_of: dict[int, list[int]] = {}
    for j in range(shares.shape[1] if len(shares) else 0):
        objectives_of.setdefault(int(np.argmax(shares[:, j])), []).append(j)
    return objectives_of
