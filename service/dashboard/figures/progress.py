"""Best values so far, throughput, failures and tokens of a run."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import (
    SERIES,
    Chart,
    Table,
    axis,
    bars,
    escaped,
    hatched,
    hover,
    scatter,
    step_line,
    thinned,
)
from service.dashboard.figures.population import MAX_AXES, Population, share_of_range
from service.dashboard.figures.solved import feasible_only, solved_so_far_chart
from speciate.domain.arrays import FloatArray
from speciate.domain.objective import Objective, ObjectiveRole

_MAX_STEPS: Final = 400
_MAX_BINS: Final = 60
_MAX_FAILURES: Final = 12
_WIDTHS_S: Final = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)


def best_so_far_chart(population: Population) -> Chart:
    objectives = [o for o in population.problem.objectives if o.role is ObjectiveRole.OBJECTIVE]
    if len(objectives) > MAX_AXES:
        return solved_so_far_chart(population)
    alone = len(objectives) == 1
    data: list[dict[str, Any]] = []
    rows: list[tuple[str, int, float]] = []
    for rank, objective in enumerate(objectives):
        curve = population.best_curve(objective)
        if curve is None:
            break
        at, best = curve
        rows += [(objective.name, int(x), float(y)) for x, y in zip(at[:-1].tolist(), best[:-1].tolist(), strict=True)]
        data.append(_best_line(rank, objective, at, best, scaled=not alone))
    title = objectives[0].name if alone else "share of the declared range"
    layout = {"xaxis": axis("evaluations"), "yaxis": axis(title), "showlegend": not alone}
    note = (
        "The value of the best candidate so far: targets met, then the objectives. A long flat end is a plateau."
        if alone
        else "The values of the best candidate so far, on their declared ranges with the better end on top. The best"
        " meets the unlock target or most others, so a value may become worse when it meets another one."
    )
    table = Table(("objective", "at evaluations", "best"), rows)
    return Chart("best", "Best so far", note + feasible_only(population), data, layout, table)


def _best_line(rank: int, objective: Objective, at: NDArray[Any], best: FloatArray, *, scaled: bool) -> dict[str, Any]:
    keep = thinned(len(at), _MAX_STEPS)
    at, best = at[keep], best[keep]
    heights = share_of_range(best, objective) if scaled else best
    texts = [f"{value:.6g}" for value in best.tolist()]
    template = hover(f"{objective.name}: %{{text}}", "at %{x} evaluations")
    return step_line(rank, at, heights, template, name=objective.name, text=texts)


def throughput_chart(population: Population) -> Chart:
    columns = population.columns
    data: list[dict[str, Any]] = []
    rows: list[tuple[str, int, int]] = []
    width = 1
    if len(columns):
        # Transactions may commit in another order than they began, so that times are not sorted.
        begin, end = float(columns.at.min()), float(columns.at.max())
        width = next((w for w in _WIDTHS_S if (end - begin) / w <= _MAX_BINS), _WIDTHS_S[-1])
        bins = ((columns.at - begin) // width).astype(np.int64)
        count = int(bins.max()) + 1
        scored = np.bincount(bins[columns.scored], minlength=count)
        failed = np.bincount(bins[~columns.scored], minlength=count)
        times = [_clock(ms) for ms in ((begin + width * np.arange(count)) * 1000.0).tolist()]
        rows = list(zip(times, scored.tolist(), failed.tolist(), strict=True))
        for name, values, colour, pattern in (("scored", scored, SERIES[0], ""), ("failed", failed, SERIES[4], "/")):
            marker = {"color": colour, "pattern": hatched(pattern, 5)}
            template = hover("%{x|%H:%M:%S}", f"%{{y:.3~r}} {name} per minute")
            data.append(bars(times, values / width * 60.0, template, name=name, marker=marker))
    layout = {"barmode": "stack", "bargap": 0.15, "xaxis": {"type": "date"}, "yaxis": axis("candidates per minute")}
    note = f"Candidates committed, in bins of {width} s; hatched: failed, without rewards. Times are UTC."
    table = Table(("from (UTC)", "scored", "failed"), rows)
    return Chart("throughput", "Throughput", note, data, layout, table, height=16)


def failures_chart(population: Population) -> Chart:
    counted = Counter(reason for reason in population.columns.failure if reason).most_common()
    rows = [(name, count, count / len(population.columns)) for name, count in counted]
    drawn = rows[:_MAX_FAILURES][::-1]
    names, counts = [escaped(name[:60]) for name, _, _ in drawn], [count for _, count, _ in drawn]
    look = {"orientation": "h", "textposition": "auto", "marker": {"color": SERIES[4]}}
    shares = [f"{share:.1%}" for _, _, share in drawn]
    data = [bars(counts, names, hover("%{y}", "%{x} candidates"), text=shares, **look)] if drawn else []
    # The most frequent reason is on top; two bars are as thick as ten.
    top = len(drawn) - 0.5
    layout = {
        "bargap": 0.35,
        "xaxis": axis("candidates"),
        "yaxis": {"automargin": True, "type": "category", "range": [top - max(len(drawn), 6), top]},
        "showlegend": False,
    }
    note = "Candidates without rewards, by reason. The throughput chart shows when they failed."
    table = Table(("failure", "candidates", "share"), rows)
    return Chart("failures", "Failures by reason", note, data, layout, table, height=16)


def tokens_chart(population: Population) -> Chart:
    columns = population.columns
    data: list[dict[str, Any]] = []
    rows: list[tuple[int, int, float]] = []
    if len(columns) and columns.tokens.any():
        keep = thinned(len(columns), _MAX_STEPS)
        rows = [(int(columns.evaluations[i]), int(columns.tokens[i]), float(columns.seconds[i])) for i in keep]
        template, line = hover("%{y:,} tokens", "at %{x:,} evaluations"), {"width": 2, "color": SERIES[3]}
        data.append(scatter("lines", columns.evaluations[keep], columns.tokens[keep], template, line=line))
    layout = {"xaxis": axis("evaluations"), "yaxis": axis("tokens", rangemode="tozero"), "showlegend": False}
    note = "Prompt and completion tokens spent; the steeper the line, the more each evaluation costs."
    table = Table(("evaluations", "tokens", "running seconds"), rows)
    return Chart("tokens", "Tokens spent", note, data, layout, table, height=16)


def _clock(milliseconds: float) -> str:
    return str(np.datetime64(int(milliseconds), "ms")).replace("T", " ")[:19]
