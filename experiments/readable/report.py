"""Count readable completions, with Wilson's interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from scipy.stats import binomtest

_HEAD = "| form | completions | readable | 95 % interval | refused as |\n|---|---|---|---|---|"


def report(lines: Iterable[Mapping[str, Any]]) -> str:
    """Return a table with a row for each form; a completion is readable if at least one of its answers is.

    Args:
        lines: One mapping for each completion: ``form, reasons``.
    """
    found = list(lines)
    rows = [_HEAD]
    for form in dict.fromkeys(line["form"] for line in found):
        mine = [line["reasons"] for line in found if line["form"] == form]
        good = sum(None in reasons for reasons in mine)
        low, high = binomtest(good, len(mine)).proportion_ci(method="wilson")
        refused = Counter(reasons[-1] for reasons in mine if None not in reasons)
        causes = ", ".join(f"{name} {count}" for name, count in refused.most_common()) or "–"
        rows.append(
            f"| {form} | {len(mine)} | {good} ({100 * good / len(mine):.0f} %) | {100 * low:.0f}–{100 * high:.0f} % |"
            f" {causes} |"
        )
    return "\n".join(rows) + "\n"
