"""What was best when, how fast does it go, and what does it spend?"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np

from service.dashboard.charts import DASHES, SERIES, Chart, Table, axis, escaped, hatched, hover, thinned
from service.dashboard.figures.population import FEW, Population
from speciate.domain.objective import Direction, ObjectiveRole
from speciate.domain.reward import FloatArray

_MOST_STEPS: Final = 400
_BINS: Final = 60
_WIDTHS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


def best_so_far_chart(of: Population) -> Chart:
    """Return the best value of each objective after every evaluation."""
    columns = of.columns
    objectives = [o for o in of.problem.objectives if o.role is ObjectiveRole.OBJECTIVE]
    if len(objectives) > FEW:
        return _solved_so_far(of)
    alone = len(objectives) == 1
    data: list[dict[str, Any]] = []
    rows: list[tuple[str, int, float]] = []
    obeying = np.flatnonzero(of.obeys)
    for rank, objective in enumerate(objectives):
        if not len(obeying):
            break
        j = of.problem.space.names.index(objective.name)
        rising = objective.direction is Direction.MAXIMIZE
        values = columns.rewards[obeying, j]
        best = np.maximum.accumulate(values) if rising else np.minimum.accumulate(values)
        steps = np.flatnonzero(np.concatenate([[True], best[1:] != best[:-1]]))
        rows += [(objective.name, int(columns.evaluations[obeying[s]]), float(best[s])) for s in steps.tolist()]
        # The last point carries the line on to where the run is now.
        at = np.append(columns.evaluations[obeying[steps]], columns.evaluations[-1])
        raw = np.append(best[steps], best[-1])
        low, high = objective.range
        part = (raw - low) / (high - low)
        keep = thinned(len(at), _MOST_STEPS)
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": objective.name,
                "x": at[keep],
                "y": (raw if alone else (part if rising else 1.0 - part))[keep],
                "text": [f"{value:.6g}" for value in raw[keep].tolist()],
                "hovertemplate": hover(f"{objective.name}: %{{text}}", "at %{x} evaluations"),
                "line": {"shape": "hv", "width": 2, "color": SERIES[rank % 8], "dash": DASHES[rank % 4]},
            }
        )
    title = objectives[0].name if alone else "share of the declared range"
    layout = {"xaxis": axis("evaluations"), "yaxis": axis(title), "showlegend": not alone}
    note = (
        "The best value found so far; a long flat end is a plateau."
        if alone
        else "The best value of each reward so far, each on its declared range, the better end on top; the bests may"
        " be of different candidates."
    )
    note += uncounted(of)
    return Chart("best", "Best so far", note, data, layout, Table(("reward", "at evaluations", "best"), rows))


def _solved_so_far(of: Population) -> Chart:
    """Return, for hundreds of rewards, how many are at their best end: of any candidate, and of one."""
    columns = of.columns
    solved = solved_of(of)
    data: list[dict[str, Any]] = []
    rows: list[tuple[int, int, int]] = []
    if len(columns) and columns.scored.any():
        anyone = np.logical_or.accumulate(solved, axis=0).sum(axis=1)
        one = np.maximum.accumulate(solved.sum(axis=1))
        steps = [0, *(np.flatnonzero((np.diff(anyone) != 0) | (np.diff(one) != 0)) + 1).tolist(), len(columns) - 1]
        steps = [steps[i] for i in thinned(len(steps), _MOST_STEPS)]
        rows = [(int(columns.evaluations[s]), int(anyone[s]), int(one[s])) for s in steps]
        for rank, (name, values) in enumerate((("by any candidate", anyone), ("by the best candidate", one))):
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "name": name,
                    "x": columns.evaluations[steps],
                    "y": values[steps],
                    "line": {"shape": "hv", "width": 2, "color": SERIES[rank], "dash": DASHES[rank]},
                }
            )
    total = solved.shape[1]
    layout = {"xaxis": axis("evaluations"), "yaxis": axis(f"rewards solved, of {total}", rangemode="tozero")}
    note = "How many rewards have been brought to the better end of their range. A gap: no candidate has them all."
    note += uncounted(of)
    return Chart(
        "best", "Rewards solved so far", note, data, layout, Table(("evaluations", "by any candidate", "by one"), rows)
    )


def solved_of(of: Population) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which of the rewards that search improves are at the better end of their range, shape (n, k).

    Of whoever violates a constraint none is.
    """
    space = of.problem.space
    picked = [space.names.index(o.name) for o in space.selected]
    ends = np.array([o.range[1] if o.direction is Direction.MAXIMIZE else o.range[0] for o in space.selected])
    signs = np.array([1.0 if o.direction is Direction.MAXIMIZE else -1.0 for o in space.selected])
    raw: FloatArray = of.columns.rewards[:, picked]
    with np.errstate(invalid="ignore"):
        return np.asarray((raw - ends) * signs >= -1e-9) & of.obeys[:, None]


def uncounted(of: Population) -> str:
    """Return the sentence of a note that says who is left out; nothing where the problem has no constraint."""
    constrained = any(o.role is ObjectiveRole.CONSTRAINT for o in of.problem.objectives)
    return " Who violates a constraint does not count." if constrained else ""


def throughput(of: Population) -> Chart:
    """Return candidates booked over time, scored and failed."""
    columns = of.columns
    data: list[dict[str, Any]] = []
    rows: list[tuple[str, int, int]] = []
    width = 1
    if len(columns):
        # A transaction that began before another one may be booked after it.
        begin, end = float(columns.at.min()), float(columns.at.max())
        width = next((w for w in _WIDTHS_S if (end - begin) / w <= _BINS), _WIDTHS_S[-1])
        bins = ((columns.at - begin) // width).astype(np.int64)
        count = int(bins.max()) + 1
        scored = np.bincount(bins[columns.scored], minlength=count)
        failed = np.bincount(bins[~columns.scored], minlength=count)
        starts = (begin + width * np.arange(count)) * 1000.0
        times = [_clock(ms) for ms in starts.tolist()]
        rows = list(zip(times, scored.tolist(), failed.tolist(), strict=True))
        for name, values, colour, pattern in (
            ("scored", scored, SERIES[0], ""),
            ("failed", failed, SERIES[4], "/"),
        ):
            data.append(
                {
                    "type": "bar",
                    "name": name,
                    "x": times,
                    "y": values / width * 60.0,
                    "marker": {"color": colour, "pattern": hatched(pattern, 5)},
                    "hovertemplate": hover("%{x|%H:%M:%S}", f"%{{y:.3~r}} {name} a minute"),
                }
            )
    layout = {"barmode": "stack", "bargap": 0.15, "xaxis": {"type": "date"}, "yaxis": axis("candidates a minute")}
    note = f"Candidates booked, in steps of {width} s; hatched: without rewards. Times are UTC."
    return Chart(
        "throughput", "Throughput", note, data, layout, Table(("from (UTC)", "scored", "failed"), rows), height=16
    )


def failures(of: Population) -> Chart:
    """Return what fails and why."""
    counted = Counter(found for found in of.columns.failure if found).most_common()
    rows = [(name, count, count / max(1, len(of.columns))) for name, count in counted]
    shown = rows[:12][::-1]
    data = []
    if shown:
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "y": [escaped(name[:60]) for name, _, _ in shown],
                "x": [count for _, count, _ in shown],
                "text": [f"{part:.1%}" for _, _, part in shown],
                "textposition": "auto",
                "marker": {"color": SERIES[4]},
                "hovertemplate": hover("%{y}", "%{x} candidates"),
            }
        )
    # The worst one on top, and a bar as high among two as among ten.
    top = len(shown) - 0.5
    layout = {
        "bargap": 0.35,
        "xaxis": axis("candidates"),
        "yaxis": {"automargin": True, "type": "category", "range": [top - max(len(shown), 6), top]},
        "showlegend": False,
    }
    note = "Candidates without rewards, by what became of them. When they came, throughput tells."
    table = Table(("failure", "candidates", "share"), rows)
    return Chart("failures", "What fails, and why", note, data, layout, table, height=16)


def tokens(of: Population) -> Chart:
    """Return tokens against evaluations."""
    columns = of.columns
    data: list[dict[str, Any]] = []
    rows: list[tuple[int, int, float]] = []
    if len(columns) and columns.tokens.any():
        keep = thinned(len(columns), _MOST_STEPS)
        rows = [(int(columns.evaluations[i]), int(columns.tokens[i]), float(columns.seconds[i])) for i in keep]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "x": columns.evaluations[keep],
                "y": columns.tokens[keep],
                "line": {"width": 2, "color": SERIES[3]},
                "hovertemplate": hover("%{y:,} tokens", "at %{x:,} evaluations"),
            }
        )
    layout = {"xaxis": axis("evaluations"), "yaxis": axis("tokens", rangemode="tozero"), "showlegend": False}
    note = "Prompt and completion tokens that were spent; a steeper line: each answer costs more."
    table = Table(("evaluations", "tokens", "running seconds"), rows)
    return Chart("tokens", "Tokens spent", note, data, layout, table, height=16)


def _clock(milliseconds: float) -> str:
    return str(np.datetime64(int(milliseconds), "ms")).replace("T", " ")[:19]
