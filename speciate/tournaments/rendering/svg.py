"""Figures of a report as inline SVG: lines and points, without scripts or external resources."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from math import log
from typing import Final, NamedTuple

Points = Sequence[tuple[float, float]]

_COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#b5a300")
_DASHES: Final = ("", "6 3", "2 3", "8 3 2 3")  # colour is never the only cue
_WIDTH, _HEIGHT, _LEFT, _TOP, _LEGEND = 380.0, 240.0, 55.0, 12.0, 18.0


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a figure."""

    name: str
    """Name in the legend; untrusted text."""
    points: Points
    """Points, ascending in x."""
    beyond: Points = ()
    """Extrapolated points, drawn dotted."""
    bars: Sequence[tuple[float, float, float]] = ()
    """Intervals, (x, low, high)."""
    dots: bool = False
    """True to mark ``points`` only and draw the line through ``beyond``."""


def figure(lines: Sequence[Line], across: str, up: str, *, logarithmic: bool = False) -> str:
    lines = [line for line in lines if line.points]
    if not lines:
        return ""
    axes = _axes(lines, logarithmic=logarithmic)
    bottom = _TOP + _HEIGHT
    drawn = [f'<rect class="frame" x="{_LEFT}" y="{_TOP}" width="{_WIDTH}" height="{_HEIGHT}"/>']
    for i, line in enumerate(lines):
        colour, dash = _COLOURS[i % len(_COLOURS)], _DASHES[i // len(_COLOURS) % len(_DASHES)]
        drawn += _drawn(line, colour, dash, axes.x_at, axes.y_at)
        drawn += _bars(line, _pen(colour, "", 1), 3 * (i - (len(lines) - 1) / 2), axes.x_at, axes.y_at)
        y = bottom + 52 + i * _LEGEND
        drawn.append(f'<line x1="{_LEFT}" x2="{_LEFT + 30}" y1="{y - 4}" y2="{y - 4}" {_pen(colour, dash)}/>')
        drawn.append(f'<text x="{_LEFT + 38}" y="{y}">{escape(line.name)}</text>')
    drawn += [
        f'<text x="{_LEFT - 6}" y="{axes.y_at(y) + 4:.0f}" text-anchor="end">{_number(y)}</text>' for y in axes.y_ticks
    ]
    drawn += [
        f'<text x="{axes.x_at(x):.0f}" y="{bottom + 15}" text-anchor="middle">{_number(x)}</text>' for x in axes.x_ticks
    ]
    label = f"{escape(up)} against {escape(across)}" + (" (logarithmic)" if logarithmic else "")
    drawn.append(f'<text x="{_LEFT + _WIDTH / 2:.0f}" y="{bottom + 30}" text-anchor="middle">{label}</text>')
    width, height = _LEFT + _WIDTH + 25, bottom + 57 + len(lines) * _LEGEND
    return (
        f'<svg role="img" aria-label="{label}" width="{width:.0f}" height="{height:.0f}"'
        f' viewBox="0 0 {width:.0f} {height:.0f}">{"".join(drawn)}</svg>'
    )


class _Axes(NamedTuple):
    x_at: Callable[[float], float]
    y_at: Callable[[float], float]
    x_ticks: tuple[float, ...]
    y_ticks: tuple[float, ...]


def _axes(lines: Sequence[Line], *, logarithmic: bool) -> _Axes:
    points = [point for line in lines for point in (*line.points, *line.beyond)]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    ys += [end for line in lines for bar in line.bars for end in bar[1:]]
    low, high = (0.0, 1.0) if min(ys) >= 0 and max(ys) <= 1 else (min(ys), max(ys))
    near, far = (min(xs) if logarithmic or min(xs) > 0 else 0.0), max(xs)
    middle = (near * far) ** 0.5 if logarithmic else (near + far) / 2
    return _Axes(
        _scale(near, far, _LEFT, _WIDTH, logarithmic=logarithmic),
        _scale(low, high, _TOP + _HEIGHT, -_HEIGHT),
        tuple(dict.fromkeys((near, middle, far))),
        (low, (low + high) / 2, high),
    )


def _drawn(
    line: Line, colour: str, dash: str, x_at: Callable[[float], float], y_at: Callable[[float], float]
) -> list[str]:
    drawn = []
    if line.dots:
        drawn += [f'<circle cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="3" fill="{colour}"/>' for x, y in line.points]
    else:
        drawn.append(_polyline(line.points, _pen(colour, dash), x_at, y_at))
    if line.beyond:
        drawn.append(_polyline(line.beyond, _pen(colour, "1 4"), x_at, y_at))
    return drawn


def _bars(
    line: Line, pen: str, aside: float, x_at: Callable[[float], float], y_at: Callable[[float], float]
) -> list[str]:
    """Return the intervals, offset per line so that none hides another."""
    places = [(f"{x_at(x) + aside:.1f}", y_at(low), y_at(high)) for x, low, high in line.bars]
    return [f'<line x1="{at}" x2="{at}" y1="{low:.1f}" y2="{high:.1f}" {pen}/>' for at, low, high in places]


def _polyline(points: Points, pen: str, x_at: Callable[[float], float], y_at: Callable[[float], float]) -> str:
    path = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in points)
    return f'<polyline fill="none" {pen} points="{path}"/>'


def _pen(colour: str, dash: str, width: int = 2) -> str:
    return f'stroke="{colour}" stroke-width="{width}" stroke-dasharray="{dash}"'


def _scale(
    low: float, high: float, start: float, length: float, *, logarithmic: bool = False
) -> Callable[[float], float]:
    if logarithmic:
        span = log(high / low) or 1.0
        return lambda value: start + length * log(value / low) / span
    wide = (high - low) or 1.0
    return lambda value: start + length * (value - low) / wide


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2g}"
