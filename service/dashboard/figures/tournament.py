"""Declared differences and cumulative reach of a tournament, with intervals."""

from collections.abc import Sequence
from typing import Any, Final

from service.dashboard.charts import SERIES, Chart, Table, axis, escaped, hover, series_marker, step_line
from service.dashboard.formatting import clip
from speciate.tournaments.report.measures import BudgetLaw, Estimate, Reached
from speciate.tournaments.report.models import Comparison, Verdict

_VERDICTS: Final = {Verdict.BETTER: "▲ better", Verdict.WORSE: "▼ worse"}
_MAX_LABEL: Final = 22
"""Characters of a label on a narrow screen."""


def differences_chart(comparisons: Sequence[Comparison], metric: str, *, narrow: bool = False) -> Chart:
    drawn = [c for c in comparisons if c.difference.value is not None][::-1]
    verdicts = [_VERDICTS.get(c.verdict, c.verdict.value) for c in drawn]
    pairs = [f"{c.a} − {c.b}" for c in drawn]
    names = [f"{escaped(pair)}<br>{verdict}" for pair, verdict in zip(pairs, verdicts, strict=True)]
    lines = [
        (pair, verdict) if len(pair) <= _MAX_LABEL else (c.a, f"− {c.b}", verdict)
        for pair, c, verdict in zip(pairs, drawn, verdicts, strict=True)
    ]
    data = [_dots([c.difference for c in drawn], names, "difference", 0)] if drawn else []
    rows = [
        (f"{c.a} − {c.b}", c.difference.value, c.difference.low, c.difference.high, c.p_value, c.holm, c.verdict.value)
        for c in comparisons
    ]
    columns = ("difference", "value", "low", "high", "p", "p, Holm", "verdict")
    layout = {
        "xaxis": axis(f"difference of {metric}", zeroline=True, zerolinewidth=2, rangemode="tozero"),
        "yaxis": _name_axis(names, lines, narrow),
        "showlegend": False,
    }
    note = (
        "Differences declared before the first run; right is better. The verdict decides, not the interval: intervals"
        " are not adjusted for the number of comparisons."
    )
    table, height = Table(columns, rows), min(96, 9 + 4 * len(drawn)) if narrow else min(48, 9 + 2 * len(drawn))
    return Chart("differences", "Difference per comparison", note, data, layout, table, height=height)


def score_chart(curves: Sequence[BudgetLaw]) -> Chart:
    """Draw the mean best score so far, at budgets that are evenly spaced in logarithm."""
    data = [
        {"type": "scatter", "mode": "lines+markers", "x": list(curve.budgets), "y": list(curve.measured),
         "name": escaped(curve.entrant), "marker": series_marker(rank, 7)}
        for rank, curve in enumerate(curves)
        if curve.measured
    ]  # fmt: skip
    # An entrant without a completed run has budgets, but no measured score.
    rows = [(c.entrant, x, y) for c in curves if c.measured for x, y in zip(c.budgets, c.measured, strict=True)]
    layout = {"xaxis": axis("evaluations", type="log"), "yaxis": axis("best score"), "showlegend": True}
    note = "Mean over problems and seeds of the best score so far. Higher and further left is better."
    table = Table(("entrant", "evaluations", "best score"), rows)
    return Chart("reached", "Best score against evaluations", note, data, layout, table, height=20)


def reach_chart(curves: Sequence[Reached]) -> Chart:
    """Draw the share of (problem, seed) pairs that reached the target, to the end of the longest curve."""
    unit = curves[0].unit if curves else "evaluations"
    drawn = [curve for curve in curves if curve.unit == unit]
    end = max((max(*curve.spent, curve.sound_until or 0.0, 0.0) for curve in drawn), default=0.0)
    data = [
        step_line(
            rank,
            [0.0, *curve.spent, end],
            [0.0, *curve.share, *(curve.share[-1:] or [0.0])],
            hover(escaped(curve.entrant), "%{y:.1%} at %{x:,}"),
            name=escaped(curve.entrant),
        )
        for rank, curve in enumerate(drawn)
        if end
    ]
    rows = [(c.entrant, x, y) for c in drawn for x, y in zip(c.spent, c.share, strict=True)]
    layout = {
        "xaxis": axis(unit),
        "yaxis": axis("share reached", tickformat=".0%", range=[0, 1.02]),
        "showlegend": True,
    }
    note = (
        f"Share of (problem, seed) pairs that reached the target, against {unit}. Higher and further left is better."
        " The curve is a lower bound where runs ended without reaching it."
    )
    table = Table(("entrant", unit, "share"), rows)
    return Chart("reached", f"Targets reached against {unit}", note, data, layout, table, height=20)


def _dots(estimates: Sequence[Estimate], names: Sequence[str], label: str, series: int) -> dict[str, Any]:
    bars = {
        "type": "data",
        "symmetric": False,
        "array": [_gap(e.high, e.value) for e in estimates],
        "arrayminus": [_gap(e.value, e.low) for e in estimates],
        "color": SERIES[series],
        "thickness": 1.5,
    }
    more = {"name": label, "error_x": bars, "marker": series_marker(series, 10), "cliponaxis": False}
    return {"type": "scatter", "mode": "markers", "x": [e.value for e in estimates], "y": list(names), **more}


def _gap(high: float | None, low: float | None) -> float | None:
    return None if high is None or low is None else high - low


def _name_axis(rows: Sequence[str], lines: Sequence[Sequence[str]], narrow: bool) -> dict[str, Any]:
    """Return the axis of named rows, with short lines on a narrow screen, where Plotly would cut long names."""
    # The fixed range gives every row equal room; by default the outermost lie at the edge, which cuts their names.
    common = {"type": "category", "automargin": True, "ticklabelstandoff": 6, "range": [-0.5, len(rows) - 0.5]}
    if not narrow:
        return common
    texts = ["<br>".join(escaped(clip(line, _MAX_LABEL)) for line in each) for each in lines]
    return common | {"tickvals": list(rows), "ticktext": texts}
