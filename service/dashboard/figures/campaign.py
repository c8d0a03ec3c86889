"""Where did a campaign's evaluations go, and what did they bring?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from service.dashboard.charts import DASHES, SERIES, SYMBOLS, Chart, Table, axis, escaped, hover, thinned
from speciate.ports.records.declarations import SliceRecord

MOST_PROBLEMS: Final = 40
MOST_DECISIONS: Final = 2000


def allocation(slices: Sequence[SliceRecord]) -> Chart:
    """Return which problem was given evaluations when, and what they led to.

    Args:
        slices: The decisions, in their order.
    """
    given: Counter[str] = Counter()
    handed: list[int] = []
    total = 0
    for each in slices:
        handed.append(total)
        total += each.evaluations if each.spent is None else each.spent
        given[each.problem] += each.evaluations if each.spent is None else each.spent
    shown = {problem for problem, _ in given.most_common(MOST_PROBLEMS)}
    kinds: dict[str, list[int]] = {"in vain": [], "under way": [], "a new target": [], "the unlock": []}
    for i, each in enumerate(slices):
        if each.problem in shown:
            kinds[_kind(each)].append(i)
    kinds["in vain"] = [kinds["in vain"][i] for i in thinned(len(kinds["in vain"]), MOST_DECISIONS)]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": kind,
            "x": [handed[i] for i in rows],
            "y": [escaped(slices[i].problem) for i in rows],
            "text": [f"{slices[i].evaluations:,} evaluations, chance {slices[i].chance:.3g}" for i in rows],
            "hovertemplate": hover("%{y}", "%{text}", "after %{x:,} of all"),
            "marker": {"color": SERIES[rank], "symbol": SYMBOLS[rank], "size": 5 if kind == "in vain" else 11},
            "cliponaxis": False,
        }
        for rank, (kind, rows) in enumerate(kinds.items())
        if rows
    ]
    order = [escaped(problem) for problem, _ in given.most_common(MOST_PROBLEMS)][::-1]
    layout = {
        "xaxis": axis("evaluations handed out before", rangemode="tozero"),
        # The first mark lies on the axis: names begin where it ends.
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": order,
            "automargin": True,
            "ticklabelstandoff": 8,
        },
        "hovermode": "closest",
    }
    rows = [
        (s.ord, s.problem, s.evaluations, s.gap, s.chance, s.spent, ", ".join(s.reached), s.closed or "")
        for s in slices
    ]
    columns = ("decision", "problem", "evaluations", "in vain before", "chance", "spent", "reached", "closed")
    left = len(given) - len(shown)
    note = "Each mark is a slice that a problem was given; those that were given most stand on top." + (
        f" {left:,} problems with fewer evaluations are not drawn; all are in the download." if left else ""
    )
    height = min(48, 10 + 2 * ((len(shown) + 1) // 2 + 1))
    return Chart("allocation", "Who was given evaluations", note, data, layout, Table(columns, rows), height=height)


def reached(slices: Sequence[SliceRecord]) -> Chart:
    """Return targets reached and problems unlocked against evaluations spent, in the order of the decisions."""
    spent = targets = unlocked = 0
    rows = [(0, 0, 0)]
    for each in slices:
        if each.spent is None:
            continue
        spent += each.spent
        targets += len(each.reached)
        unlocked += each.closed == _UNLOCKED
        rows.append((spent, targets, unlocked))
    kept = [rows[i] for i in thinned(len(rows), 400)]
    data: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "lines",
            "name": name,
            "x": [row[0] for row in kept],
            "y": [row[column] for row in kept],
            "hovertemplate": hover(f"%{{y}} {name}", "after %{x:,} evaluations"),
            "line": {"shape": "hv", "width": 2, "color": SERIES[column - 1], "dash": DASHES[column - 1]},
        }
        for column, name in ((1, "targets reached"), (2, "problems unlocked"))
        if len(rows) > 1
    ]
    layout = {"xaxis": axis("evaluations spent", rangemode="tozero"), "yaxis": axis("so far", rangemode="tozero")}
    note = "Confirmed targets and unlocks; a flat end: what is left is hard."
    table = Table(("evaluations", "targets reached", "problems unlocked"), rows)
    return Chart("reached", "What it brought", note, data, layout, table)


_UNLOCKED: Final = "unlocked"


def _kind(given: SliceRecord) -> str:
    if given.closed == _UNLOCKED:
        return "the unlock"
    if given.reached:
        return "a new target"
    return "under way" if given.spent is None else "in vain"
