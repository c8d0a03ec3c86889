"""The allocation of a campaign's evaluations to problems, and the targets they reached."""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Final

from service.dashboard.charts import Chart, Table, axis, escaped, hover, scatter, series_marker, step_line, thinned
from speciate.schema.declarations import SliceRecord

MAX_PROBLEMS: Final = 40
MAX_SLICES: Final = 2000
_MAX_STEPS: Final = 400
_UNLOCKED: Final = "unlocked"
_NO_GAIN, _RUNNING, _TARGET, _UNLOCK = "no new target", "running", "new target", "unlock"


def allocation_chart(slices: Sequence[SliceRecord]) -> Chart:
    """Draw each slice at its problem and its place in the budget, marked by its outcome."""
    granted: Counter[str] = Counter()
    for each in slices:
        granted[each.problem] += _cost(each)
    before = list(accumulate(map(_cost, slices), initial=0))
    drawn = [problem for problem, _ in granted.most_common(MAX_PROBLEMS)]
    data = [
        _marks(rank, outcome, [slices[i] for i in at], [before[i] for i in at])
        for rank, (outcome, at) in enumerate(_by_outcome(slices, drawn).items())
        if at
    ]
    layout = {
        "xaxis": axis("evaluations granted before", rangemode="tozero"),
        # The first mark lies on the axis: the standoff keeps it clear of the names.
        "yaxis": {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": [escaped(problem) for problem in reversed(drawn)],
            "automargin": True,
            "ticklabelstandoff": 8,
        },
        "hovermode": "closest",
    }
    rows = [
        (s.ord, s.problem, s.evaluations, s.gap, s.chance, s.spent, ", ".join(s.reached), s.closed or "")
        for s in slices
    ]
    columns = ("slice", "problem", "evaluations", "without gain before", "chance", "spent", "reached", "closed")
    hidden = len(granted) - len(drawn)
    note = "Each mark is a slice granted to a problem; the problems with the most evaluations are on top." + (
        f" {hidden:,} problems with fewer evaluations are not drawn; the download has all." if hidden else ""
    )
    height = min(48, 10 + 2 * ((len(drawn) + 1) // 2 + 1))
    return Chart("allocation", "Allocation of evaluations", note, data, layout, Table(columns, rows), height=height)


def campaign_progress_chart(slices: Sequence[SliceRecord]) -> Chart:
    """Draw targets reached and problems unlocked against evaluations spent, in the order of the slices."""
    spent = targets = unlocked = 0
    rows = [(0, 0, 0)]
    for each in slices:
        if each.spent is None:
            continue
        spent += each.spent
        targets += len(each.reached)
        unlocked += each.closed == _UNLOCKED
        rows.append((spent, targets, unlocked))
    steps = [rows[i] for i in thinned(len(rows), _MAX_STEPS)]
    data = [
        step_line(
            rank,
            [row[0] for row in steps],
            [row[rank + 1] for row in steps],
            hover(f"%{{y}} {name}", "after %{x:,} evaluations"),
            name=name,
        )
        for rank, name in enumerate(("targets reached", "problems unlocked"))
        if len(rows) > 1
    ]
    layout = {"xaxis": axis("evaluations spent", rangemode="tozero"), "yaxis": axis("so far", rangemode="tozero")}
    note = "Confirmed targets and unlocks. A long flat end means that the remaining problems are hard."
    table = Table(("evaluations", "targets reached", "problems unlocked"), rows)
    return Chart("reached", "Targets and unlocks", note, data, layout, table)


def _by_outcome(slices: Sequence[SliceRecord], problems: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of the slices of some problems by outcome; those without gain are thinned."""
    outcomes: dict[str, list[int]] = {_NO_GAIN: [], _RUNNING: [], _TARGET: [], _UNLOCK: []}
    for i, each in enumerate(slices):
        if each.problem in problems:
            outcomes[_outcome(each)].append(i)
    without = outcomes[_NO_GAIN]
    return outcomes | {_NO_GAIN: [without[i] for i in thinned(len(without), MAX_SLICES)]}


def _marks(rank: int, outcome: str, slices: Sequence[SliceRecord], before: Sequence[int]) -> dict[str, Any]:
    problems = [escaped(each.problem) for each in slices]
    texts = [f"{each.evaluations:,} evaluations, chance {each.chance:.3g}" for each in slices]
    template = hover("%{y}", "%{text}", "after %{x:,} of all")
    marker = series_marker(rank, 5 if outcome == _NO_GAIN else 11)
    return scatter("markers", before, problems, template, name=outcome, text=texts, marker=marker, cliponaxis=False)


def _cost(slice: SliceRecord) -> int:  # noqa: A002
    return slice.evaluations if slice.spent is None else slice.spent


def _outcome(slice: SliceRecord) -> str:  # noqa: A002
    if slice.closed == _UNLOCKED:
        return _UNLOCK
    if slice.reached:
        return _TARGET
    return _RUNNING if slice.spent is None else _NO_GAIN
