"""Charts: a title, a Plotly figure as JSON, and a table with the same data."""

import csv
import gzip
import hashlib
import io
import json
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import APIRouter, Depends, Request, Response

from service.dashboard.pages import macro
from service.dashboard.scales import Extent, scaled
from service.responses import attachment
from speciate import __version__
from speciate.domain.values import spreadsheet_text

SERIES: Final = tuple(f"--series-{i}" for i in range(1, 9))
"""CSS tokens of the series colours; the browser replaces them with the theme's values."""

SYMBOLS: Final = ("circle", "diamond", "square", "triangle-up", "cross", "star", "hexagon", "triangle-down")
DASHES: Final = ("solid", "dash", "dot", "dashdot")
"""Marker shapes and line styles change with the colour, which is never the only cue."""

ROWS_ON_PAGE: Final = 50

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    links: tuple[str, ...] = ()  # URL of the first cell of each row

    @property
    def first(self) -> Sequence[Sequence[Cell]]:
        return self.rows[:ROWS_ON_PAGE]

    def csv(self) -> str:
        """Return comma-separated values, with cells that a spreadsheet would evaluate quoted as text."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([_inert(name) for name in self.columns])
        writer.writerows([[_inert(cell) for cell in row] for row in self.rows])
        return out.getvalue()


@dataclass(frozen=True)
class Chart:
    name: str
    title: str
    note: str  # how to read the chart; also its text alternative
    data: Sequence[dict[str, Any]]
    layout: dict[str, Any]
    table: Table
    height: int = 20  # in rem
    caption: str = ""  # shown beside the title, even where the note is folded
    link: str = ""  # URL of a point, with ``{}`` for its ``customdata``
    extents: Mapping[str, Extent] = field(default_factory=dict)  # of axes whose range is robust to outliers

    @property
    def empty(self) -> bool:
        return not self.data

    def spec(self) -> dict[str, Any]:
        layout, log, beyond = scaled(self.data, self.layout, self.extents)
        return {
            "data": to_json(self.data),
            "layout": to_json(layout),
            "log": log,
            "fit": bool(self.extents),
            "note": self.note + (f" “Fit to data” shows {beyond:,} more beyond the axes." if beyond else ""),
            "link": self.link,
            "height": self.height,
        }


def to_json(value: Any) -> Any:
    """Convert arrays and tuples to lists and non-finite numbers to None."""
    if isinstance(value, dict):
        return {name: to_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if hasattr(value, "tolist"):
        return to_json(value.tolist())
    if isinstance(value, float):
        # Ten digits are finer than any zoom, and shorten the response.
        return float(f"{value:.10g}") if math.isfinite(value) else None
    return value


def axis(title: str, **more: Any) -> dict[str, Any]:
    return {"title": {"text": title}, **more}


def hover(*lines: str) -> str:
    """Return a hover text; Plotly replaces ``%{…}``."""
    return "<br>".join(lines) + "<extra></extra>"


def escaped(text: str) -> str:
    """Escape a text that Plotly would otherwise read as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def thinned(count: int, limit: int) -> list[int]:
    """Return at most ``limit`` of ``count`` positions, evenly spaced, with the first and the last."""
    if count <= limit:
        return list(range(count))
    return sorted({round(i * ((count - 1) / (limit - 1))) for i in range(limit)})


def scatter(mode: str, x: Any, y: Any, hovertemplate: str, **more: Any) -> dict[str, Any]:
    return {"type": "scatter", "mode": mode, "x": x, "y": y, "hovertemplate": hovertemplate, **more}


def bars(x: Any, y: Any, hovertemplate: str, **more: Any) -> dict[str, Any]:
    return {"type": "bar", "x": x, "y": y, "hovertemplate": hovertemplate, **more}


def series_marker(rank: int, size: int) -> dict[str, Any]:
    return {"size": size, "color": SERIES[rank % len(SERIES)], "symbol": SYMBOLS[rank % len(SYMBOLS)]}


def step_line(rank: int, x: Any, y: Any, hovertemplate: str, **more: Any) -> dict[str, Any]:
    """Return a step line with the colour and dash of series ``rank``; ``more`` overrides."""
    look = {"shape": "hv", "width": 2, "color": SERIES[rank % len(SERIES)], "dash": DASHES[rank % len(DASHES)]}
    return {**scatter("lines", x, y, hovertemplate, line=look), **more}


def respond(request: Request, key: Hashable, draw: Callable[[], Chart]) -> Response:
    """Return a figure, or 304 if the browser's copy has the same ``key``, which changes with the data."""
    tag = f'"{hashlib.blake2b(repr((__version__, key)).encode(), digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    chart = draw()
    # The table travels with the figure, so that both stay equal on a live page.
    sent = {**chart.spec(), "table_html": macro("rows", chart)}
    body = json.dumps(sent, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")
    if "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = gzip.compress(body, 5, mtime=0), "gzip"
    return Response(body, headers=headers, media_type="application/json")


@dataclass(frozen=True)
class Figure:
    """A chart that is drawn on demand."""

    key: Hashable  # changes with the data
    draw: Callable[[], Chart]
    file: str  # name of the download without extension


def add_figure_routes(router: APIRouter, path: str, find: Callable[..., Figure]) -> None:
    """Add ``path``.json and ``path``.csv; ``find`` is a dependency that takes the parameters of both."""

    @router.get(f"{path}.json")
    def get_figure(request: Request, figure: Figure = Depends(find)) -> Response:
        return respond(request, figure.key, figure.draw)

    @router.get(f"{path}.csv")
    def get_data(figure: Figure = Depends(find)) -> Response:
        return download(figure.draw().table, figure.file)


def download(table: Table, name: str) -> Response:
    content = table.csv().encode("utf-8", "replace")
    return Response(content, headers=attachment(f"{name}.csv"), media_type="text/csv; charset=utf-8")


def _inert(cell: Cell) -> Cell:
    return spreadsheet_text(cell) if isinstance(cell, str) else cell
