"""The record history of a problem: who unlocked it, when, and at what price."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from service.dashboard.charts import SERIES, SYMBOLS, Chart, Table, axis, escaped, hover
from speciate.ports.records.unlocks import UnlockRecord

_MOST = 8


def record_history(unlocks: Sequence[UnlockRecord]) -> Chart:
    """Return every unlock over time with its price, and the record as a line.

    Args:
        unlocks: Confirmed unlocks of one problem version.
    """
    ordered = sorted(unlocks, key=lambda unlock: unlock.at)
    everybody = list(dict.fromkeys(u.who for u in ordered))
    data: list[dict[str, Any]] = []
    best: list[tuple[str, int]] = []
    for unlock in ordered:
        if not best or unlock.evaluations < best[-1][1]:
            best.append((_when(unlock), unlock.evaluations))
    if ordered:
        line = [*best, (_when(ordered[-1]), best[-1][1])]
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "record",
                "x": [x for x, _ in line],
                "y": [y for _, y in line],
                "line": {"shape": "hv", "width": 1.5, "dash": "dot", "color": "--muted"},
            }
        )
    for rank, who in enumerate(everybody):
        mine = [u for u in ordered if u.who == who]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": escaped(who),
                "x": [_when(u) for u in mine],
                "y": [u.evaluations for u in mine],
                "hovertemplate": hover(escaped(who), "%{y:,} evaluations", "%{x}"),
                "marker": {"size": 9, "color": SERIES[rank % _MOST], "symbol": SYMBOLS[rank % _MOST]},
            }
        )
    layout = {"xaxis": {"type": "date"}, "yaxis": axis("evaluations to unlock", type="log")}
    rows = [(_when(u), u.who, u.strategy, u.evaluations, u.tokens) for u in ordered]
    table = Table(("when (UTC)", "who was asked", "strategy", "evaluations", "tokens"), rows)
    note = "Each point is a run that unlocked the problem, at the evaluations it took; the line is the record."
    return Chart("records", "Record history", note, data, layout, table, height=18)


def _when(unlock: UnlockRecord) -> str:
    return unlock.at.strftime("%Y-%m-%d %H:%M:%S")
