"""Best values of several runs on one problem, run by run or as group means."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import Chart, Table, axis, escaped, hover, step_line, thinned
from service.dashboard.figures.population import Population, better
from service.dashboard.formatting import directed
from speciate.domain.objective import Objective

_MAX_STEPS: Final = 300
_CHANCE: Final = "Single runs differ by chance; a tournament tests whether a difference is real."


def compare_runs_chart(runs: Sequence[tuple[str, Population]], objective: Objective) -> Chart:
    """Draw the best value of an objective so far, one line per run.

    Args:
        runs: Names and candidates, all of problems that declare the objective.
        objective: The objective to compare.
    """
    data: list[dict[str, Any]] = []
    rows: list[tuple[str, int, float]] = []
    for rank, (name, population) in enumerate(runs):
        curve = population.best_curve(objective)
        if curve is None:
            continue
        at, best = curve
        rows += [(name, int(x), float(y)) for x, y in zip(at.tolist(), best.tolist(), strict=True)]
        data.append(_line(rank, name, f"{objective.name}: %{{y}}", at, best))
    table = Table(("run", "at evaluations", f"best {objective.name}"), rows)
    return _chart(objective, f"{better(objective)}. {_CHANCE}", data, table)


def compare_groups_chart(groups: Sequence[tuple[str, Sequence[Population]]], objective: Objective) -> Chart:
    """Draw the mean, lowest and highest best value so far of each group of runs.

    A run without a feasible candidate has no value and is left out; the note gives their number. A mean spans the
    evaluations at which all remaining runs of its group have a value; a group without such a span is left out.

    Args:
        groups: Names and the candidates of each run, all of problems that declare the objective.
        objective: The objective to compare.
    """
    data: list[dict[str, Any]] = []
    rows: list[tuple[str | int | float, ...]] = []
    left_out = 0
    for rank, (name, runs) in enumerate(groups):
        curves = [curve for population in runs if (curve := population.best_curve(objective)) is not None]
        left_out += len(runs) - len(curves)
        at, values = _common_span(curves)
        if not len(at):
            continue
        low, mean, high = values.min(axis=0), values.mean(axis=0), values.max(axis=0)
        rows += [(name, len(curves), int(x), *map(float, ys)) for x, *ys in zip(at, mean, low, high, strict=True)]
        if len(curves) > 1:
            data += [{**_edge(rank, at, edge), "legendgroup": name} for edge in (low, high)]
        label = f"{name} ({len(curves)})"
        data.append({**_line(rank, label, f"mean {objective.name}: %{{y}}", at, mean), "legendgroup": name})
    columns = ("runs with", "runs", "at evaluations", f"mean best {objective.name}", "lowest", "highest")
    note = f"{better(objective)}. A thick line is the mean over its runs, thin lines are the lowest and the highest."
    if left_out:
        note += f" Left out: {left_out} run{'s' * (left_out > 1)} without a feasible candidate."
    return _chart(objective, f"{note} {_CHANCE}", data, Table(columns, rows))


def _common_span(curves: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return evaluations at which all curves have a value, shape (n,), and the values, shape (k, n)."""
    if not curves:
        return np.empty(0), np.empty((0, 0))
    first, last = max(at[0] for at, _ in curves), min(at[-1] for at, _ in curves)
    steps = np.unique(np.concatenate([at for at, _ in curves]))
    steps = steps[(steps >= first) & (steps <= last)]
    return steps, np.array([best[np.searchsorted(at, steps, side="right") - 1] for at, best in curves])


def _line(rank: int, name: str, value: str, at: NDArray[Any], best: NDArray[Any]) -> dict[str, Any]:
    keep = thinned(len(at), _MAX_STEPS)
    # Users choose the name: Plotly must not expand "%{" in it.
    template = hover(escaped(name).replace("%{", "% {"), value, "at %{x} evaluations")
    return step_line(rank, at[keep], best[keep], template, name=escaped(name))


def _edge(rank: int, at: NDArray[Any], best: NDArray[Any]) -> dict[str, Any]:
    thin = _line(rank, "", "", at, best)
    return {**thin, "line": {**thin["line"], "width": 1}, "opacity": 0.5, "showlegend": False, "hoverinfo": "skip"}


def _chart(objective: Objective, note: str, data: list[dict[str, Any]], table: Table) -> Chart:
    layout = {"xaxis": axis("evaluations"), "yaxis": axis(directed(objective)), "showlegend": True}
    return Chart("best", f"Best {objective.name} so far", note, data, layout, table, height=22)
