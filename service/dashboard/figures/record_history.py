"""The record history of a problem: its unlocks over time with the evaluations they took."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from service.dashboard.charts import Chart, Table, axis, escaped, hover, scatter, series_marker
from speciate.schema.unlocks import UnlockRecord


def record_history_chart(unlocks: Sequence[UnlockRecord], total: int) -> Chart:
    ordered = sorted(unlocks, key=lambda unlock: unlock.at)
    data: list[dict[str, Any]] = []
    if ordered:
        line = {"shape": "hv", "width": 1.5, "dash": "dot", "color": "--muted"}
        records = list(accumulate((unlock.evaluations for unlock in ordered), min))
        x = [_timestamp(unlock) for unlock in ordered]
        data.append({"type": "scatter", "mode": "lines", "name": "record", "x": x, "y": records, "line": line})
    by_policy: dict[str, list[UnlockRecord]] = {}
    for unlock in ordered:
        by_policy.setdefault(unlock.policy_label, []).append(unlock)
    for rank, (who, own) in enumerate(by_policy.items()):
        x, y = [_timestamp(unlock) for unlock in own], [unlock.evaluations for unlock in own]
        template = hover(escaped(who), "%{y:,} evaluations", "%{x}")
        data.append(scatter("markers", x, y, template, name=escaped(who), marker=series_marker(rank, 9)))
    layout = {"xaxis": {"type": "date"}, "yaxis": axis("evaluations to unlock", type="log")}
    rows = [(_timestamp(u), u.policy_label, u.strategy, u.evaluations, u.tokens) for u in ordered]
    table = Table(("time (UTC)", "policy", "strategy", "evaluations", "tokens"), rows)
    note = "Each point is a run that unlocked the problem, at the evaluations it took. The line is the record."
    if hidden := total - len(unlocks):
        note += f" Earlier unlocks that set no record are left out: {hidden:,}."
    return Chart("records", "Record history", note, data, layout, table, height=18)


def _timestamp(unlock: UnlockRecord) -> str:
    return unlock.at.strftime("%Y-%m-%d %H:%M:%S")
