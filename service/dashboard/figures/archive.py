"""Heat maps of the archive: cells per island, coloured by one objective."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from service.dashboard.charts import SCALE, Chart, Table, axis, hover
from speciate.domain.objective import Direction, Objective
from speciate.schema.candidates import EliteRecord

MAX_ISLANDS: Final = 16
_FEATURE: Final = re.compile(r"^([a-z]+):(\d+)$")


def feature_map_chart(elites: Sequence[EliteRecord], objective: Objective, run_url: str, *, across: int = 4) -> Chart:
    """Draw the cells that two features select, one heat map per island."""
    names, by_island = _feature_cells(elites, objective)
    islands = sorted(by_island)[:MAX_ISLANDS]
    wide, high = _extent(by_island)
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {"showlegend": False, "coloraxis": _colour_axis(objective), "annotations": []}
    for position, island in enumerate(islands):
        suffix = str(position + 1) if position else ""
        grid = [[by_island[island].get((i, j)) for i in range(wide)] for j in range(high)]
        hovered = (f"island {island}", f"{names[0]} %{{x}}, {names[1]} %{{y}}")
        axes = {"x": list(range(wide)), "y": list(range(high)), "xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
        data.append({**_heat_map(grid, objective, *hovered), **axes})
        _position(layout, position, (len(islands), across), f"island {island}", names[:2])
    rows = [
        (island, f"{names[0]} {i}", f"{names[1]} {j}", elite.number, elite.rewards[objective.name])
        for island, cells in sorted(by_island.items())
        for (i, j), elite in sorted(cells.items())
    ]
    table = Table(("island", names[0], names[1], "candidate", objective.name), rows)
    note = (
        f"One square per cell of each island's archive, coloured by {objective.name}; gaps are empty cells. The first"
        " axis above chooses the objective."
    )
    if names[2:]:
        note += f" Cells that differ only in {', '.join(names[2:])} share a square: it shows the best {objective.name}."
    if hidden := len(by_island) - len(islands):
        note += f" Islands that are not drawn: {hidden}; the table has them."
    height = 2 + 14 * (1 + max(0, len(islands) - 1) // across)
    link = f"{run_url}/candidates/{{}}"
    return Chart("cells", "Archive by features", note, data, layout, table, height=height, link=link)


def tradeoff_map_chart(elites: Sequence[EliteRecord], objective: Objective, run_url: str) -> Chart:
    others = [elite for elite in elites if len(_features(elite.cell)) < 2]
    cells = sorted({elite.cell for elite in others}, key=_natural)
    islands = sorted({elite.island for elite in others})
    holders = {(elite.island, elite.cell): elite for elite in others}
    grid = [[holders.get((island, cell)) for cell in cells] for island in islands]
    axes = {"x": cells, "y": [f"island {island}" for island in islands]}
    data = [{**_heat_map(grid, objective, "%{y}, cell %{x}"), **axes}] if others else []
    layout = {
        "coloraxis": _colour_axis(objective),
        "xaxis": {"type": "category", **axis("cell")},
        "yaxis": {"type": "category", "autorange": "reversed", "automargin": True},
    }
    rows = [(e.island, e.cell, e.number, e.fitness, e.rewards[objective.name]) for e in others]
    table = Table(("island", "cell", "candidate", "fitness in its cell", objective.name), rows)
    note = (
        "One square per cell and island: the best candidate for a weighting of the objectives (w0, w1, …; declared: the"
        " problem's own weights), a slot of a population (@slot), or the latest candidate (other @). Coloured by"
        f" {objective.name}."
    )
    height = 8 + min(12, 2 * len(islands))
    link = f"{run_url}/candidates/{{}}"
    return Chart("tradeoffs", "Archive by trade-off", note, data, layout, table, height=height, link=link)


def _feature_cells(
    elites: Sequence[EliteRecord], objective: Objective
) -> tuple[Sequence[str], dict[int, dict[tuple[int, int], EliteRecord]]]:
    """Return the names of the features, and the elites by island and cell of the first two.

    Of the elites that share such a cell, the best in ``objective`` remains, of equal ones the earliest.
    """
    names: Sequence[str] = ("first", "second")
    islands: dict[int, dict[tuple[int, int], EliteRecord]] = {}
    sign = 1 if objective.direction is Direction.MAXIMIZE else -1
    for elite in sorted(elites, key=lambda elite: (sign * elite.rewards[objective.name], -elite.number)):
        parts = _features(elite.cell)
        if len(parts) >= 2:
            names = [name for name, _ in parts]
            islands.setdefault(elite.island, {})[parts[0][1], parts[1][1]] = elite
    return names, islands


def _extent(islands: Mapping[int, Mapping[tuple[int, int], EliteRecord]]) -> tuple[int, int]:
    keys = [key for cells in islands.values() for key in cells]
    wide, high = (1 + max((key[part] for key in keys), default=0) for part in (0, 1))
    return wide, high


def _heat_map(grid: Sequence[Sequence[EliteRecord | None]], objective: Objective, *hovered: str) -> dict[str, Any]:
    return {
        "type": "heatmap",
        "z": [[e.rewards[objective.name] if e else None for e in row] for row in grid],
        "customdata": [[e.number if e else None for e in row] for row in grid],
        "xgap": 2,
        "ygap": 2,
        "coloraxis": "coloraxis",
        "hoverongaps": False,
        "hovertemplate": hover(*hovered, f"{objective.name}: %{{z}}", "candidate %{customdata}"),
    }


def _features(cell: str) -> list[tuple[str, int]]:
    parts = [_FEATURE.match(part) for part in cell.split(",")]
    return [(match[1], int(match[2])) for match in parts if match] if all(parts) else []


def _natural(cell: str) -> tuple[str, int, str]:
    """Return a sort key that orders w2 before w10."""
    match = re.match(r"^(\D*)(\d{1,9})?(.*)$", cell, re.DOTALL)
    return (match[1], int(match[2] or -1), match[3]) if match else (cell, -1, "")


def _colour_axis(objective: Objective) -> dict[str, Any]:
    bar = {
        "title": {"text": objective.directed, "side": "right"},
        "thickness": 10,
        "outlinewidth": 0,
        "tickformat": ".3~g",
    }
    return {"colorscale": SCALE, "reversescale": objective.direction is Direction.MINIMIZE, "colorbar": bar}


def _position(layout: dict[str, Any], position: int, of: tuple[int, int], title: str, names: Sequence[str]) -> None:
    """Place one of ``of[0]`` heat maps in a grid with ``of[1]`` columns."""
    wide = min(of[1], of[0])
    deep = 1 + (of[0] - 1) // wide
    row, column = divmod(position, wide)
    suffix = str(position + 1) if position else ""
    gap_x, gap_y = 0.05, 0.3 / deep
    width, height = (1 - gap_x * (wide - 1)) / wide, (1 - gap_y * (deep - 1)) / deep
    left, top = column * (width + gap_x), 1 - row * (height + gap_y)
    ticks = {"showgrid": False, "zeroline": False, "dtick": 1, "tickfont": {"size": 10}}
    layout[f"xaxis{suffix}"] = {
        **(axis(names[0]) if row == deep - 1 else {}),
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
    corner = {"x": left, "y": top, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    layout["annotations"].append({"text": title, **corner, "showarrow": False, "font": {"size": 12}})
