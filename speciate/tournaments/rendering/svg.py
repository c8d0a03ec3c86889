"""Figures of a report: lines and points in the pixels of an SVG, which ``report.html`` draws."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import ClassVar, Final

Points = Sequence[tuple[float, float]]

_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b5a300")
_DASHES: Final = ("", "6 3", "2 3", "8 3 2 3")  # colour is never the only cue


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    """Name in the legend; untrusted text."""
    points: Points
    beyond: Points = ()
    """Extrapolated points, drawn dotted."""
    bars: Sequence[tuple[float, float, float]] = ()
    """Intervals, (x, low, high)."""
    colour: str = ""
    dash: str = ""


@dataclass(frozen=True)
class Figure:
    """Lines with their axes. Lengths are in pixels."""

    left: ClassVar = 55.0
    top: ClassVar = 12.0
    plot_width: ClassVar = 380.0
    plot_height: ClassVar = 240.0
    bottom: ClassVar = top + plot_height
    legend: ClassVar = 18.0
    """Height of a line of the legend."""
    width: ClassVar = f"{left + plot_width + 25:.0f}"

    lines: Sequence[Line]
    label: str
    x_at: Callable[[float], float]
    y_at: Callable[[float], float]
    x_ticks: tuple[float, ...]
    y_ticks: tuple[float, ...]

    @property
    def height(self) -> str:
        return f"{self.bottom + 57 + len(self.lines) * self.legend:.0f}"


def figures(lines: Sequence[Line], across: str, up: str, *, logarithmic: bool = False) -> list[Figure]:
    """Return the figure of the lines that have points; none without such a line."""
    lines = [line for line in lines if line.points]
    if not lines:
        return []
    points = [point for line in lines for point in (*line.points, *line.beyond)]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    ys += [end for line in lines for bar in line.bars for end in bar[1:]]
    low, high = (0.0, 1.0) if min(ys) >= 0 and max(ys) <= 1 else (min(ys), max(ys))
    near, far = (min(xs) if logarithmic or min(xs) > 0 else 0.0), max(xs)
    middle = (near * far) ** 0.5 if logarithmic else (near + far) / 2
    drawn = [
        replace(line, colour=_COLOURS[i % len(_COLOURS)], dash=_DASHES[i // len(_COLOURS) % len(_DASHES)])
        for i, line in enumerate(lines)
    ]
    return [
        Figure(
            drawn,
            f"{up} against {across}{' (logarithmic)' if logarithmic else ''}",
            _scale(near, far, Figure.left, Figure.plot_width, logarithmic=logarithmic),
            _scale(low, high, Figure.bottom, -Figure.plot_height),
            tuple(dict.fromkeys((near, middle, far))),
            (low, (low + high) / 2, high),
        )
    ]


def tick(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"


def _scale(
    low: float, high: float, start: float, length: float, *, logarithmic: bool = False
) -> Callable[[float], float]:
    if logarithmic:
        span = log(high / low) or 1.0
        return lambda value: start + length * log(value / low) / span
    wide = (high - low) or 1.0
    return lambda value: start + length * (value - low) / wide
