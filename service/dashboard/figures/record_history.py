"""The record history of a problem: its unlocks over time with the evaluations they took."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from service.dashboard.charts import SERIES, SYMBOLS, Chart, Table, axis, escaped, hover
from speciate.schema.unlocks import UnlockRecord


def record_history_chart(unlocks: Sequence[UnlockRecord], total: int) -> Chart:
    """Draw unlocks over time with their evaluations, and the record as a line.

    Args:
        unlocks: Confirmed unlocks of one problem version, with all records.
        total: Number of its confirmed unlocks.
    """
    ordered = sorted(unlocks, key=lambda unlock: unlock.at)
    data: list[dict[str, Any]] = []
    if ordered:
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "record",
                "x": [_timestamp(unlock) for unlock in ordered],
                "y": list(accumulate((unlock.evaluations for unlock in ordered), min)),
                "line": {"shape": "hv", "width": 1.5, "dash": "dot", "color": "--muted"},
            }
        )
    by_policy: dict[str, list[UnlockRecord]] = {}
    for unlock in ordered:
        by_policy.setdefault(unlock.policy_label, []).append(unlock)
    for rank, (who, own) in enumerate(by_policy.items()):
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": escaped(who),
                "x": [_timestamp(unlock) for unlock in own],
                "y": [unlock.evaluations for unlock in own],
                "hovertemplate": hover(escaped(who), "%{y:,} evaluations", "%{x}"),
                "marker": {
                    "size": 9,
                    "color": SERIES[rank % len(SERIES)],
                    "symbol": SYMBOLS[rank % len(SYMBOLS)],
                },
            }
        )
    layout = {"xaxis": {"type": "date"}, "yaxis": axis("evaluations to unlock", type="log")}
    rows = [(_timestamp(u), u.policy_label, u.strategy, u.evaluations, u.tokens) for u in ordered]
    table = Table(("time (UTC)", "policy", "strategy", "evaluations", "tokens"), rows)
    note = "Each point is a run that unlocked the problem, at the evaluations it took. The line is the record."
    if hidden := total - len(unlocks):
        note += f" Earlier unlocks that set no record are left out: {hidden:,}."
    return Chart("records", "Record history", note, data, layout, table, height=18)


def _timestamp(unlock: UnlockRecord) -> str:
    return unlock.at.strftime("%Y-%m-%d %H:%M:%S")
