"""Charts of several runs on one problem: the best candidate and the hypervolume over evaluations, and the fronts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import Cell, Chart, Table, axis, escaped, hover, series_marker, step_line, thinned
from service.dashboard.figures.population import Population, better
from speciate.domain.arrays import FloatArray
from speciate.domain.objective import Direction, Objective
from speciate.domain.reward import pareto_front

_MAX_STEPS: Final = 300
_MAX_FRONT: Final = 400
_CHANCE: Final = "Single runs differ by chance; a tournament tests whether a difference is real."

Curve = tuple[NDArray[Any], FloatArray]
"""Evaluations and the value at each, shape (n,) each."""


@dataclass(frozen=True)
class Measure:
    """A value of a run that changes with its evaluations."""

    title: str
    value: str
    axis: str
    note: str
    caption: str
    curve: Callable[[Population], Curve | None]


def best_of(objective: Objective) -> Measure:
    return Measure(
        f"Best {objective.name} so far",
        f"best {objective.name}",
        objective.directed,
        f"{better(objective)}. The best value of any feasible candidate so far: the run's best candidate, in the table"
        " below, need not have it.",
        "from any candidate",
        lambda run: run.best_curve(objective),
    )


HYPERVOLUME: Final = Measure(
    "Hypervolume",
    "hypervolume",
    "hypervolume ↑",
    "The share of the declared ranges that some candidate dominates: higher is better. Values beyond a range count as"
    " its end; with three objectives or more it is estimated, to about 0.01.",
    "of all candidates together",
    lambda run: run.hypervolume_curve,
)


def compare_curves_chart(groups: Sequence[tuple[str, Sequence[Population]]], measure: Measure) -> Chart:
    """Draw a measure of each run, or the mean of each group of runs with a band from the lowest to the highest value.

    A run without a value, such as one without a feasible candidate, is left out; the note gives their number. A mean
    spans the evaluations at which all remaining runs of its group have a value; a group without a span is left out.
    """
    data: list[dict[str, Any]] = []
    rows: list[tuple[str | int | float, ...]] = []
    left_out, apart = 0, list[str]()
    for rank, (name, runs) in enumerate(groups):
        curves = [curve for population in runs if (curve := measure.curve(population)) is not None]
        left_out += len(runs) - len(curves)
        at, values = _common_span(curves)
        if not len(at):
            apart += [name] * bool(curves)
            continue
        low, mean, high = values.min(axis=0), values.mean(axis=0), values.max(axis=0)
        rows += [(name, len(curves), int(x), *map(float, ys)) for x, *ys in zip(at, mean, low, high, strict=True)]
        label = f"{name} ({len(curves)})" if len(runs) > 1 else name
        if len(curves) > 1:
            data += [{**_edge(rank, at, low), "legendgroup": name}]
            data += [{**_edge(rank, at, high), "legendgroup": name, "fill": "tonexty"}]
        data.append({**_line(rank, label, f"{measure.value} {measure.caption}: %{{y}}", at, mean), "legendgroup": name})
    note = f"{measure.note} {_CHANCE}"
    if any(len(runs) > 1 for _, runs in groups):
        note += " A line is the mean over the runs of a group, its band reaches from the lowest to the highest."
    if left_out:
        note += f" Left out: {left_out} run{'s' * (left_out > 1)} without a feasible candidate."
    if apart:
        note += f" Not drawn, since their runs have no evaluations in common: {', '.join(apart)}."
    table = Table(("runs", "number of runs", "at evaluations", f"mean {measure.value}", "lowest", "highest"), rows)
    layout = {"xaxis": axis("evaluations"), "yaxis": axis(measure.axis), "showlegend": True}
    return Chart("curves", measure.title, note, data, layout, table, height=22, caption=measure.caption)


def compare_fronts_chart(
    groups: Sequence[tuple[str, Sequence[Population]]], first: Objective, second: Objective
) -> Chart:
    """Draw the Pareto fronts of runs or groups of runs over two objectives, feasible candidates only."""
    fronts = [(name, *_front(runs, first, second)) for name, runs in groups]
    rows: list[tuple[Cell, ...]] = [
        (name, number, x, y)
        for name, points, candidates in fronts
        for (number, _), (x, y) in zip(candidates, points.tolist(), strict=True)
    ]
    data = [
        trace
        for rank, (name, points, candidates) in enumerate(fronts)
        for trace in _front_traces(rank, name, points, candidates, first, second)
    ]
    note = (
        f"The Pareto front of each run. {better(first)}, {better(second)}. Lines join the candidates that are best in"
        " these two objectives; small points are on the front for other objectives."
    )
    layout = {"xaxis": axis(first.directed), "yaxis": axis(second.directed), "showlegend": True, "hovermode": "closest"}
    table = Table(("run", "candidate", first.name, second.name), rows)
    return Chart("fronts", "Fronts", note, data, layout, table, height=22, link="{}")


def _front(runs: Sequence[Population], first: Objective, second: Objective) -> tuple[FloatArray, list[tuple[int, str]]]:
    """Return the fronts of runs in two objectives, shape (n, 2), with the numbers and URLs of the n candidates."""
    parts: list[FloatArray] = []
    candidates: list[tuple[int, str]] = []
    for run in runs:
        rows = run.front[run.feasible[run.front]]
        names = run.problem.space.names
        parts.append(run.columns.rewards[rows][:, [names.index(first.name), names.index(second.name)]])
        candidates += [(number, run.link.format(number)) for number in run.columns.number[rows].tolist()]
    return np.concatenate(parts), candidates


def _front_traces(
    rank: int, name: str, points: FloatArray, candidates: Sequence[tuple[int, str]], first: Objective, second: Objective
) -> list[dict[str, Any]]:
    """Return a line through the boundary in the two objectives, and points for the rest of the front."""
    label = escaped(name)
    template = hover(label.replace("%{", "% {"), "candidate %{text}", f"{first.name}: %{{x}}", f"{second.name}: %{{y}}")
    # Nondominated in the two objectives, by the first one; and the other rows.
    signs = [1.0 if objective.direction is Direction.MAXIMIZE else -1.0 for objective in (first, second)]
    best = pareto_front(points * signs)
    edge, inner = np.flatnonzero(best), np.flatnonzero(~best)
    edge = edge[np.argsort(points[edge, 0], kind="stable")]
    traces = []
    for rows, mode, size, opacity in ((inner, "markers", 4, 0.4), (edge, "lines+markers", 8, 1.0)):
        if len(rows):
            drawn = rows[thinned(len(rows), _MAX_FRONT)]
            trace = step_line(rank, points[drawn, 0], points[drawn, 1], template, name=label, legendgroup=str(rank))
            trace["line"] |= {"shape": "vh" if first.direction is Direction.MAXIMIZE else "hv", "width": 1.5}
            texts, links = [str(candidates[i][0]) for i in drawn], [candidates[i][1] for i in drawn]
            more = {
                "marker": series_marker(rank, size),
                "text": texts,
                "customdata": links,
                "showlegend": mode != "markers",
            }
            traces.append({**trace, "mode": mode, "opacity": opacity, **more})
    return traces


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


def _edge(rank: int, at: NDArray[Any], values: NDArray[Any]) -> dict[str, Any]:
    edge = _line(rank, "", "", at, values)
    return {**edge, "line": {**edge["line"], "width": 0}, "showlegend": False, "hoverinfo": "skip"}
