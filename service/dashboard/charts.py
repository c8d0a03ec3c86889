"""Charts: the question, the figure as Plotly's JSON, and the table that says the same."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import Request, Response

from service.dashboard.formatting import number
from service.dashboard.pages import macro

SERIES: Final = tuple(f"--series-{i}" for i in range(1, 9))
"""Tokens of colours that tell series apart; the browser puts in what the theme says."""

SYMBOLS: Final = ("circle", "diamond", "square", "triangle-up", "cross", "star", "hexagon", "triangle-down")
DASHES: Final = ("solid", "dash", "dot", "dashdot")
"""Colour is never the only cue: shapes of points and of lines change with it."""

SCALE: Final = [[0.0, "--scale-low"], [0.5, "--scale-mid"], [1.0, "--scale-high"]]
ROWS_ON_PAGE: Final = 50
_KEPT: Final = 256

Cell = str | int | float | None


@dataclass(frozen=True)
class Table:
    """Rows under names; what a chart says, in words and numbers.

    Attributes:
        columns: Names of the columns.
        rows: Values, one for each column.
        links: Address for the first cell of every row, where there is one.
    """

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]
    links: tuple[str, ...] = ()

    @property
    def first(self) -> Sequence[Sequence[Cell]]:
        """Rows that stand on the page; all of them can be downloaded."""
        return self.rows[:ROWS_ON_PAGE]

    def csv(self) -> str:
        """Return the table as comma-separated values; cells that a spreadsheet would compute are made texts."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([_inert(name) for name in self.columns])
        writer.writerows([[_inert(cell) for cell in row] for row in self.rows])
        return out.getvalue()


@dataclass(frozen=True)
class Chart:
    """One chart.

    Attributes:
        name: Its name in addresses.
        title: What it shows, short.
        note: How to read it; also its description for whoever does not see it.
        data: Traces.
        layout: What differs from the common layout, which the browser adds with the theme's colours.
        table: The same as a table.
        height: In rem.
        link: Address of a point, with ``{}`` for its ``customdata``; empty when points lead nowhere.
    """

    name: str
    title: str
    note: str
    data: Sequence[dict[str, Any]]
    layout: dict[str, Any]
    table: Table
    height: int = 20
    link: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not self.data

    def spec(self) -> dict[str, Any]:
        """Return what the browser is sent."""
        return {"data": plain(self.data), "layout": plain(self.layout), "link": self.link, "height": self.height}


def plain(value: Any) -> Any:
    """Return a value as JSON has it: no arrays, and null for what is not finite."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float):
        # Six digits are finer than any screen, and half as long as all of them.
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def axis(title: str, **more: Any) -> dict[str, Any]:
    """Return an axis."""
    return {"title": {"text": title}, **more}


def hover(*lines: str) -> str:
    """Return the text beside the pointer; ``%{…}`` are filled in by Plotly."""
    return "<br>".join(lines) + "<extra></extra>"


def hatched(shape: str, size: int) -> dict[str, Any]:
    """Return lines over a bar's own colour; without ``overlay`` they would be all that there is of it."""
    return {"shape": shape, "fillmode": "overlay", "fgcolor": "--surface", "fgopacity": 0.8, "size": size}


def escaped(text: str) -> str:
    """Return a text in which Plotly finds no markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def thinned(count: int, most: int) -> list[int]:
    """Return at most ``most`` of ``count`` positions, evenly, the last one among them."""
    if count <= most:
        return list(range(count))
    step = (count - 1) / (most - 1)
    return sorted({round(i * step) for i in range(most)})


def summary_table(rows: Sequence[tuple[str, float | None]], head: tuple[str, str]) -> Table:
    """Return a table of names and numbers."""
    return Table(head, [(name, number(value)) for name, value in rows])


@dataclass
class ChartCache:
    """Figures as they are sent, by run, revision and query; the least recently used ones are forgotten."""

    _kept: OrderedDict[Hashable, tuple[str, bytes]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, request: Request, key: Hashable, make: Callable[[], Chart]) -> Response:
        """Return a figure, or 304 when the browser has it."""
        with self._lock:
            held = self._kept.get(key)
            if held is not None:
                self._kept.move_to_end(key)
        if held is None:
            chart = make()
            # The table goes along, so that on a page that is watched it says what the chart says.
            sent = {**chart.spec(), "table_html": macro("rows", chart)}
            body = json.dumps(sent, separators=(",", ":"), allow_nan=False).encode("utf-8", "replace")
            held = f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"', gzip.compress(body, 5, mtime=0)
            with self._lock:
                self._kept[key] = held
                while len(self._kept) > _KEPT:
                    self._kept.popitem(last=False)
        tag, packed = held
        headers = {"ETag": tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(gzip.decompress(packed), headers=headers, media_type="application/json")
        return Response(packed, headers={**headers, "Content-Encoding": "gzip"}, media_type="application/json")


def download(table: Table, name: str) -> Response:
    """Return a table as a file."""
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return Response(table.csv().encode("utf-8", "replace"), headers=headers, media_type="text/csv; charset=utf-8")


def _inert(cell: Cell) -> Cell:
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in {"=", "+", "@", "\t", "\r"} else cell
