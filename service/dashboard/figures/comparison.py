"""Several runs on one problem: which was better when?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import DASHES, SERIES, Chart, Table, axis, escaped, hover, thinned
from service.dashboard.figures.population import Population, better
from service.dashboard.formatting import directed
from speciate.domain.objective import Direction, Objective

_MOST_STEPS = 300
_LUCK = "Single runs differ by luck: whether a difference is real, a tournament says."

Course = tuple[NDArray[Any], NDArray[Any]]
"""Evaluations at which the best value changed, with the last ones; and that value. Shape (n,) each."""


def compare_runs_chart(runs: Sequence[tuple[str, Population]], objective: Objective) -> Chart:
    """Return the best value of an objective so far, a line for each run.

    Args:
        runs: Names and candidates; all of problems that declare the objective.
        objective: What is compared.
    """
    data: list[dict[str, Any]] = []
    rows: list[tuple[str, int, float]] = []
    for rank, (name, of) in enumerate(runs):
        course = _course(of, objective)
        if course is None:
            continue
        at, raw = course
        rows += [(name, int(x), float(y)) for x, y in zip(at.tolist(), raw.tolist(), strict=True)]
        data.append(_line(rank, name, f"{objective.name}: %{{y}}", at, raw))
    table = Table(("run", "at evaluations", f"best {objective.name}"), rows)
    return _chart(objective, f"{better(objective)}. {_LUCK}", data, table)


def compare_groups_chart(groups: Sequence[tuple[str, Sequence[Population]]], objective: Objective) -> Chart:
    """Return the mean of the best values so far of the runs of each group, and how far these are apart.

    Runs in which nobody obeys the constraints have no value: they are left out, and the note says so. A mean is told
    from where every other run of its group has one, up to where the first of them ends; a group without such a span is
    left out.

    Args:
        groups: Names and the candidates of each run; all of problems that declare the objective.
        objective: What is compared.
    """
    data: list[dict[str, Any]] = []
    rows: list[tuple[str | int | float, ...]] = []
    without = 0
    for rank, (name, runs) in enumerate(groups):
        courses = [course for of in runs if (course := _course(of, objective)) is not None]
        without += len(runs) - len(courses)
        if not courses:
            continue
        first, last = max(when[0] for when, _ in courses), min(when[-1] for when, _ in courses)
        at = np.unique(np.concatenate([when for when, _ in courses]))
        at = at[(at >= first) & (at <= last)]
        if not len(at):
            continue
        held = np.array([raw[np.searchsorted(when, at, side="right") - 1] for when, raw in courses])
        low, mean, high = held.min(axis=0), held.mean(axis=0), held.max(axis=0)
        rows += [(name, len(courses), int(x), *map(float, told)) for x, *told in zip(at, mean, low, high, strict=True)]
        shown = f"{name} ({len(courses)})"
        if len(courses) > 1:
            data += [{**_edge(rank, at, values), "legendgroup": name} for values in (low, high)]
        data.append({**_line(rank, shown, f"mean {objective.name}: %{{y}}", at, mean), "legendgroup": name})
    columns = ("runs with", "runs", "at evaluations", f"mean best {objective.name}", "lowest", "highest")
    note = f"{better(objective)}. A line is the mean over its runs, thin ones are the lowest and the highest."
    if without:
        note += f" Left out: {without} run{'s' * (without > 1)} without a candidate that obeys every constraint."
    return _chart(objective, f"{note} {_LUCK}", data, Table(columns, rows))


def _course(of: Population, objective: Objective) -> Course | None:
    """Return when a run got better, None where nothing obeys the constraints."""
    obeying = np.flatnonzero(of.obeys)
    if not len(obeying):
        return None
    values = of.columns.rewards[obeying, of.problem.space.names.index(objective.name)]
    rising = objective.direction is Direction.MAXIMIZE
    best = np.maximum.accumulate(values) if rising else np.minimum.accumulate(values)
    steps = np.flatnonzero(np.concatenate([[True], best[1:] != best[:-1]]))
    at = np.append(of.columns.evaluations[obeying[steps]], of.columns.evaluations[-1])
    return at, np.append(best[steps], best[-1])


def _line(rank: int, name: str, value: str, at: NDArray[Any], raw: NDArray[Any]) -> dict[str, Any]:
    keep = thinned(len(at), _MOST_STEPS)
    # A name is people's own: what Plotly would fill in must not be read in it.
    told = escaped(name).replace("%{", "% {")
    return {
        "type": "scatter",
        "mode": "lines",
        "name": escaped(name),
        "x": at[keep],
        "y": raw[keep],
        "hovertemplate": hover(told, value, "at %{x} evaluations"),
        "line": {"shape": "hv", "width": 2, "color": SERIES[rank % 8], "dash": DASHES[rank % 4]},
    }


def _edge(rank: int, at: NDArray[Any], raw: NDArray[Any]) -> dict[str, Any]:
    thin = _line(rank, "", "", at, raw)
    return {**thin, "line": {**thin["line"], "width": 1}, "opacity": 0.5, "showlegend": False, "hoverinfo": "skip"}


def _chart(objective: Objective, note: str, data: list[dict[str, Any]], table: Table) -> Chart:
    layout = {"xaxis": axis("evaluations"), "yaxis": axis(directed(objective)), "showlegend": True}
    return Chart("best", f"Best {objective.name} so far", note, data, layout, table, height=22)
