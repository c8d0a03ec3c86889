"""Is the difference real? A tournament's numbers with their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from service.dashboard.charts import DASHES, SERIES, SYMBOLS, Chart, Table, axis, escaped, hover
from service.dashboard.formatting import clip
from speciate.tournaments.report.measures import Estimate, Reached
from speciate.tournaments.report.models import Comparison, Standing, Verdict

_SHOWN = {Verdict.BETTER: "▲ better", Verdict.WORSE: "▼ worse"}
_LINE: Final = 22
"""Characters of a name in a line, where there is little room."""


def standings_chart(standings: Sequence[Standing], *, narrow: bool = False) -> Chart:
    """Return the chance of every entrant that one run reaches the target, with intervals, best first."""
    ordered = sorted(standings, key=lambda s: -(s.pass_1.value or 0.0))
    shown = [s for s in ordered if s.pass_1.value is not None][::-1]
    names = [escaped(s.entrant) for s in shown]
    data: list[dict[str, Any]] = []
    if shown:
        data.append(
            _dots([s.pass_1 for s in shown], names, "pass@1", SERIES[0], SYMBOLS[0])
            | {"hovertemplate": hover("%{y}", "pass@1: %{x:.3f}")}
        )
        if any(s.pass_k.value is not None and s.pass_k.value != s.pass_1.value for s in shown):
            data.append(_dots([s.pass_k for s in shown], names, "pass@k", SERIES[1], SYMBOLS[1]))
    rows = [
        (s.entrant, s.unlocked, s.pass_1.value, s.pass_1.low, s.pass_1.high, s.pass_k.value, s.best_1.value, s.ended)
        for s in ordered
    ]
    columns = ("entrant", "problems unlocked", "pass@1", "low", "high", "pass@k", "best@1", "runs")
    layout = {
        "xaxis": axis("chance that a run reaches the target", range=[-0.02, 1.02]),
        "yaxis": _names(names, [(s.entrant,) for s in shown], narrow),
        "showlegend": len(data) > 1,
    }
    note = "Points with intervals over problems. Whether they overlap decides nothing: the comparison of pairs does."
    return Chart(
        "standings", "Who stands where", note, data, layout, Table(columns, rows), height=_height(len(shown), narrow)
    )


def differences_chart(comparisons: Sequence[Comparison], metric: str, *, narrow: bool = False) -> Chart:
    """Return every declared difference with its interval and verdict."""
    shown = [c for c in comparisons if c.difference.value is not None][::-1]
    verdicts = [_SHOWN.get(c.verdict, c.verdict.value) for c in shown]
    names = [f"{escaped(f'{c.a} − {c.b}')}<br>{verdict}" for c, verdict in zip(shown, verdicts, strict=True)]
    lines = [(*_pair(c), verdict) for c, verdict in zip(shown, verdicts, strict=True)]
    data = [_dots([c.difference for c in shown], names, "difference", SERIES[0], "circle")] if shown else []
    rows = [
        (f"{c.a} − {c.b}", c.difference.value, c.difference.low, c.difference.high, c.p_value, c.holm, c.verdict.value)
        for c in comparisons
    ]
    columns = ("difference", "value", "low", "high", "p", "p, Holm", "verdict")
    layout = {
        "xaxis": axis(f"difference of {metric}", zeroline=True, zerolinewidth=2, rangemode="tozero"),
        "yaxis": _names(names, lines, narrow),
        "showlegend": False,
    }
    note = (
        "Differences that were declared before the first run; right is better. Which of them are real is what the"
        " verdicts say: an interval that leaves out zero is not adjusted for the number of comparisons."
    )
    return Chart(
        "differences",
        "Is the difference real?",
        note,
        data,
        layout,
        Table(columns, rows),
        height=_height(len(shown), narrow),
    )


def reached_chart(curves: Sequence[Reached]) -> Chart:
    """Return the share of problems and seeds that were reached against evaluations, to where the last curve ends."""
    mine = [curve for curve in curves if curve.unit == curves[0].unit] if curves else []
    end = max((x for curve in mine for x in (*curve.spent, curve.sound_until or 0.0)), default=0.0)
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": escaped(curve.entrant),
            "x": [0.0, *curve.spent, end],
            "y": [0.0, *curve.share, *(curve.share[-1:] or [0.0])],
            "hovertemplate": hover(escaped(curve.entrant), "%{y:.1%} at %{x:,}"),
            "line": {"shape": "hv", "width": 2, "color": SERIES[rank % 8], "dash": DASHES[rank % 4]},
        }
        for rank, curve in enumerate(mine)
        if end
    ]
    rows = [(c.entrant, x, y) for c in mine for x, y in zip(c.spent, c.share, strict=True)]
    unit = mine[0].unit if mine else "evaluations"
    layout = {
        "xaxis": axis(unit),
        "yaxis": axis("share reached", tickformat=".0%", range=[0, 1.02]),
        "showlegend": True,
    }
    note = (
        f"Share of (problem, seed) pairs that reached the target, against {unit}. Higher and further left is better."
        " Where runs have ended without it, a curve is a lower bound."
    )
    return Chart(
        "reached", "Reached against spent", note, data, layout, Table(("entrant", unit, "share"), rows), height=20
    )


def _dots(estimates: Sequence[Estimate], names: Sequence[str], label: str, colour: str, symbol: str) -> dict[str, Any]:
    values = [estimate.value for estimate in estimates]
    bars = {
        "type": "data",
        "symmetric": False,
        "array": [_gap(e.high, e.value) for e in estimates],
        "arrayminus": [_gap(e.value, e.low) for e in estimates],
        "color": colour,
        "thickness": 1.5,
    }
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label,
        "x": values,
        "y": list(names),
        "error_x": bars,
        "marker": {"size": 10, "color": colour, "symbol": symbol},
        "cliponaxis": False,
    }


def _gap(high: float | None, low: float | None) -> float:
    return 0.0 if high is None or low is None else high - low


def _pair(compared: Comparison) -> tuple[str, ...]:
    """Return the names of a comparison, in one line where they fit."""
    whole = f"{compared.a} − {compared.b}"
    return (whole,) if len(whole) <= _LINE else (compared.a, f"− {compared.b}")


def _names(rows: Sequence[str], lines: Sequence[Sequence[str]], narrow: bool) -> dict[str, Any]:
    """Return the axis of rows that have names.

    Plotly cuts off the left part of a name that takes more than its share of a chart: a narrow one has short lines.
    """
    # As much room for every row: by default the outermost lie at the edge, which cuts a name of several lines.
    common = {"type": "category", "automargin": True, "ticklabelstandoff": 6, "range": [-0.5, len(rows) - 0.5]}
    if not narrow:
        return common
    texts = ["<br>".join(escaped(clip(line, _LINE)) for line in each) for each in lines]
    return common | {"tickvals": list(rows), "ticktext": texts}


def _height(count: int, narrow: bool) -> int:
    return min(96, 9 + 4 * count) if narrow else min(48, 9 + 2 * count)
