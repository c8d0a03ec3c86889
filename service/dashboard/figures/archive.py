"""Which cells and islands live?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from service.dashboard.charts import SCALE, Chart, Table, axis, hover
from service.dashboard.formatting import directed
from speciate.domain.objective import Direction, Objective
from speciate.ports.records.candidates import EliteRecord

_PART: Final = re.compile(r"^([a-z]+):(\d+)$")
MOST_ISLANDS: Final = 16


def feature_map_chart(elites: Sequence[EliteRecord], objective: Objective, run: str, *, across: int = 4) -> Chart:
    """Return the cells that are named by two features, a heat map for each island, coloured by one reward.

    Args:
        elites: The archive.
        objective: Gives the colours.
        run: Address of the run's page.
        across: Heat maps beside each other.
    """
    found: dict[int, dict[tuple[int, int], EliteRecord]] = {}
    names = ("", "")
    for elite in elites:
        parts = _features(elite.cell)
        if len(parts) >= 2:
            names = (parts[0][0], parts[1][0])
            found.setdefault(elite.island, {})[parts[0][1], parts[1][1]] = elite
    islands = sorted(found)[:MOST_ISLANDS]
    wide = 1 + max((key[0] for cells in found.values() for key in cells), default=0)
    high = 1 + max((key[1] for cells in found.values() for key in cells), default=0)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"showlegend": False, "coloraxis": _colours(objective), "annotations": []}
    for position, island in enumerate(islands):
        cells = found[island]
        suffix = str(position + 1) if position else ""
        grid = [[cells.get((i, j)) for i in range(wide)] for j in range(high)]
        data.append(
            {
                "type": "heatmap",
                "z": [[e.rewards[objective.name] if e else None for e in row] for row in grid],
                "customdata": [[e.number if e else None for e in row] for row in grid],
                "x": list(range(wide)),
                "y": list(range(high)),
                "xgap": 2,
                "ygap": 2,
                "coloraxis": "coloraxis",
                "xaxis": f"x{suffix}",
                "yaxis": f"y{suffix}",
                "hoverongaps": False,
                "hovertemplate": hover(
                    f"island {island}",
                    f"{names[0]} %{{x}}, {names[1]} %{{y}}",
                    f"{objective.name}: %{{z}}",
                    "candidate %{customdata}",
                ),
            }
        )
        _place(layout, position, (len(islands), across), f"island {island}", names)
    rows = [
        (island, f"{names[0]} {i}", f"{names[1]} {j}", elite.number, elite.rewards[objective.name])
        for island, cells in sorted(found.items())
        for (i, j), elite in sorted(cells.items())
    ]
    table = Table(("island", names[0] or "first", names[1] or "second", "candidate", objective.name), rows)
    note = (
        f"One square for each shape of program that an island holds, coloured by {objective.name}; gaps are shapes that"
        " nobody has. Choose another reward as the first axis to colour by it."
    )
    deep = 1 + (len(islands) - 1) // across if islands else 1
    return Chart(
        "cells", "Archive by shape", note, data, layout, table, height=14 * deep + 2, link=f"{run}/candidates/{{}}"
    )


def tradeoff_map_chart(elites: Sequence[EliteRecord], objective: Objective, run: str) -> Chart:
    """Return the other cells, islands over cells, coloured by one reward."""
    others = [elite for elite in elites if len(_features(elite.cell)) < 2]
    cells = sorted({elite.cell for elite in others}, key=_natural)
    islands = sorted({elite.island for elite in others})
    held = {(elite.island, elite.cell): elite for elite in others}
    data: list[dict[str, Any]] = []
    if others:
        grid = [[held.get((island, cell)) for cell in cells] for island in islands]
        data.append(
            {
                "type": "heatmap",
                "x": cells,
                "y": [f"island {island}" for island in islands],
                "z": [[e.rewards[objective.name] if e else None for e in row] for row in grid],
                "customdata": [[e.number if e else None for e in row] for row in grid],
                "xgap": 2,
                "ygap": 2,
                "coloraxis": "coloraxis",
                "hoverongaps": False,
                "hovertemplate": hover("%{y}, cell %{x}", f"{objective.name}: %{{z}}", "candidate %{customdata}"),
            }
        )
    layout = {
        "coloraxis": _colours(objective),
        "xaxis": {"type": "category", **axis("cell")},
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True},
    }
    rows = [(e.island, e.cell, e.number, e.fitness, e.rewards[objective.name]) for e in others]
    table = Table(("island", "cell", "candidate", "fitness in its cell", objective.name), rows)
    note = (
        "One square for each weighting of the rewards that an island keeps the best candidate for (w0, w1, …; declared:"
        f" the problem's own weights; @slot: a place in a population; other @: what came last), coloured by"
        f" {objective.name}."
    )
    return Chart(
        "tradeoffs",
        "Archive by trade-off",
        note,
        data,
        layout,
        table,
        height=8 + min(12, 2 * len(islands)),
        link=f"{run}/candidates/{{}}",
    )


def _features(cell: str) -> list[tuple[str, int]]:
    parts = [_PART.match(part) for part in cell.split(",")]
    return [(found[1], int(found[2])) for found in parts if found] if all(parts) else []


def _natural(cell: str) -> tuple[str, int, str]:
    found = re.match(r"^(\D*)(\d{1,9})?(.*)$", cell, re.DOTALL)
    return (found[1], int(found[2] or -1), found[3]) if found else (cell, -1, "")


def _colours(objective: Objective) -> dict[str, Any]:
    best_first = objective.direction is Direction.MINIMIZE
    bar = {
        "title": {"text": directed(objective), "side": "right"},
        "thickness": 10,
        "outlinewidth": 0,
        "tickformat": ".3~g",
    }
    return {"colorscale": SCALE, "reversescale": best_first, "colorbar": bar}


def _place(layout: dict[str, Any], position: int, of: tuple[int, int], title: str, names: tuple[str, str]) -> None:
    """Give a heat map its place among ``of[0]``, of which ``of[1]`` stand beside each other."""
    wide = min(of[1], of[0])
    deep = 1 + (of[0] - 1) // wide
    row, column = divmod(position, wide)
    suffix = str(position + 1) if position else ""
    across, down = 0.05, 0.3 / deep
    width, height = (1 - across * (wide - 1)) / wide, (1 - down * (deep - 1)) / deep
    left, top = column * (width + across), 1 - row * (height + down)
    ticks = {"showgrid": False, "zeroline": False, "dtick": 1, "tickfont": {"size": 10}}
    below = row == deep - 1
    layout[f"xaxis{suffix}"] = {
        **(axis(names[0]) if below else {}),
        **ticks,
        "domain": [left, left + width],
        "anchor": f"y{suffix}",
    }
    layout[f"yaxis{suffix}"] = {
        **(axis(names[1]) if column == 0 else {}),
        **ticks,
        "domain": [max(0.0, top - height), top],
        "anchor": f"x{suffix}",
        "showticklabels": column == 0,
    }
    place = {"x": left, "y": top, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    layout["annotations"].append({"text": title, **place, "showarrow": False, "font": {"size": 12}})
