"""Parallel coordinates of the Pareto front: crossing lines are trade-offs."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import SERIES, Chart, hover, scatter
from service.dashboard.figures.population import MAX_AXES, Population, front_table
from speciate.domain.arrays import FloatArray
from speciate.domain.objective import Direction, Objective

MAX_LINES: Final = 150


def parallel_chart(population: Population) -> Chart:
    """Draw the front as lines over all objectives, each from its worst value drawn to its best one, which is on top."""
    columns, space, front = population.columns, population.problem.space, population.front
    objectives = space.selected[:MAX_AXES]
    picked = [space.names.index(objective.name) for objective in objectives]
    seed = np.flatnonzero(columns.scored & columns.seed)[:1]
    best = np.array(population.ranked_front[:1], dtype=np.int64)
    shown = population.drawn_front(MAX_LINES)
    looks: list[tuple[str, NDArray[np.int64], dict[str, Any], float]] = [
        (f"front ({len(front):,})", shown, {"width": 1, "color": SERIES[0]}, 0.4),
        ("seed", seed, {"width": 2, "color": SERIES[4], "dash": "dot"}, 1.0),
        ("best", best, {"width": 2.6, "color": SERIES[1]}, 1.0),
    ]
    drawn = columns.rewards[np.union1d(shown, seed)][:, picked]
    data = [
        {**_lines(population, objectives, rows, picked, drawn), "name": name, "line": line, "opacity": opacity}
        for name, rows, line, opacity in looks
        if len(rows)
    ]
    layout = {
        "xaxis": {"type": "category", "tickfont": {"size": 10}, **({"tickangle": 0} if len(objectives) <= 4 else {})},
        "yaxis": {"visible": False, "range": [-0.05, 1.05]},
        "hovermode": "closest",
        "showlegend": True,
    }
    hidden = len(front) - len(shown)
    note = (
        "Each line is a candidate of the front. Crossing lines are trade-offs; the better end of each axis is on top."
        + (f" {hidden:,} candidates of the front are not drawn; the download has all." if hidden else "")
    )
    table = front_table(population)
    return Chart("parallel", "Trade-offs", note, data, layout, table, height=14, link=population.link)


def _lines(
    population: Population, objectives: tuple[Objective, ...], rows: Any, picked: list[int], drawn: FloatArray
) -> dict[str, Any]:
    """Return n candidates as one trace with a gap after each: a hundred traces take a browser a hundred times as long.

    Heights are shares of the span of the m rows of ``drawn``, shape (m, d).
    """
    raw, low, high = population.columns.rewards[rows][:, picked], drawn.min(axis=0), drawn.max(axis=0)
    rising = np.array([objective.direction is Direction.MAXIMIZE for objective in objectives])
    worst, top = np.where(rising, low, high), np.where(rising, high, low)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(top == worst, 1.0, (raw - worst) / (top - worst))
    names = [f"{o.directed}<br>{t:.4g}<br>to {w:.4g}" for o, t, w in zip(objectives, top, worst, strict=True)]
    numbers = population.columns.number[rows].tolist()
    return scatter(
        "lines+markers",
        [*names, None] * len(numbers),
        [value for share in shares.tolist() for value in (*share, None)],
        hover("candidate %{customdata}", "%{text}"),
        customdata=[number for number in numbers for _ in (*names, None)],
        text=[
            text
            for point in raw.tolist()
            for text in (*(f"{o.name}: {value:.4g}" for o, value in zip(objectives, point, strict=True)), "")
        ],
        marker={"size": 4},
    )
