"""Several runs on one problem: which was better when?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from service.dashboard.charts import DASHES, SERIES, Chart, Table, axis, escaped, hover, thinned
from service.dashboard.figures.population import Population, better
from service.dashboard.words import directed
from speciate.domain.objective import Direction, Objective

_MOST_STEPS = 300


def best_of_runs(runs: Sequence[tuple[str, Population]], objective: Objective) -> Chart:
    """Return the best value of an objective so far, a line for each run.

    Args:
        runs: Names and candidates; all of problems that declare the objective.
        objective: What is compared.
    """
    data: list[dict[str, Any]] = []
    rows: list[tuple[str, int, float]] = []
    rising = objective.direction is Direction.MAXIMIZE
    for rank, (name, of) in enumerate(runs):
        obeying = np.flatnonzero(of.obeys)
        if not len(obeying):
            continue
        values = of.columns.rewards[obeying, of.problem.space.names.index(objective.name)]
        best = np.maximum.accumulate(values) if rising else np.minimum.accumulate(values)
        steps = np.flatnonzero(np.concatenate([[True], best[1:] != best[:-1]]))
        at = np.append(of.columns.evaluations[obeying[steps]], of.columns.evaluations[-1])
        raw = np.append(best[steps], best[-1])
        rows += [(name, int(x), float(y)) for x, y in zip(at.tolist(), raw.tolist(), strict=True)]
        keep = thinned(len(at), _MOST_STEPS)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": escaped(name),
                "x": at[keep],
                "y": raw[keep],
                "hovertemplate": hover(escaped(name), f"{objective.name}: %{{y}}", "at %{x} evaluations"),
                "line": {"shape": "hv", "width": 2, "color": SERIES[rank % 8], "dash": DASHES[rank % 4]},
            }
        )
    layout = {"xaxis": axis("evaluations"), "yaxis": axis(directed(objective)), "showlegend": True}
    note = f"{better(objective)}. Single runs differ by luck: whether a difference is real, a tournament says."
    table = Table(("run", "at evaluations", f"best {objective.name}"), rows)
    return Chart("best", f"Best {objective.name} so far", note, data, layout, table, height=22)
