"""The evaluator of maze problems: this file, word for word, is the author's script that scores routes in the sandbox.

Nothing but the standard library is imported, since the script has to run by itself.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

STEPS = ((-1, 0), (0, 1), (1, 0), (0, -1))


def score(text: str, context: Any) -> dict[str, float]:
    """Return the rewards of a route such as ``00 01 11``, each in [0, 1], higher is better."""
    maze = json.loads(context.files["maze.json"])
    return score_route(maze["rows"], maze["budget"], read_route(text))


def read_route(text: str) -> list[tuple[int, int]]:
    """Return the cells of a route as pairs of row and column; an unreadable one is empty."""
    cells = text.replace(",", "").split()
    return [(int(cell[0]), int(cell[1])) for cell in cells] if all(_is_cell(cell) for cell in cells) else []


def score_route(rows: Sequence[str], budget: int, route: Sequence[tuple[int, int]]) -> dict[str, float]:
    """Return the rewards of a route; all are 0 unless it is one that reaches the exit within the budget."""
    marks = {(r, c): mark for r, row in enumerate(rows) for c, mark in enumerate(row) if mark != "#"}
    names = ("completion", "gold", "diamond", "avoid_lava")
    walked = all((b[0] - a[0], b[1] - a[1]) in STEPS for a, b in pairwise(route))
    inside = bool(route) and all(cell in marks for cell in route)
    if not (walked and inside and len(route) - 1 <= budget and marks[route[0]] == "S" and marks[route[-1]] == "E"):
        return dict.fromkeys(names, 0.0)
    seen = [marks[cell] for cell in set(route)]
    everything = list(marks.values())
    gold, diamond, lava = (seen.count(mark) / everything.count(mark) for mark in "GDL")
    return dict(zip(names, (1.0, gold, diamond, 1.0 - lava), strict=True))


def _is_cell(cell: str) -> bool:
    return len(cell) == 2 and cell.isascii() and cell.isdigit()
