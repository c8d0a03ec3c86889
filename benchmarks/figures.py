"""Goals, measured figures and their ratio to the figures of an earlier release, kept in ``figures.json``.

Machines differ in speed, so a figure that depends on it is compared in units of a yardstick: a fixed computation that
is timed in the same run. Load changes figures, too: repeat a slow one beside nothing else before looking for a cause.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from benchmarks.parts import median, show

KEPT: Final = Path(__file__).with_name("figures.json")
SLOWER: Final = 1.2
"""Ratio from which a figure is marked."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured figure.

    Attributes:
        value: In ``unit``.
        goal: Limit of the value, or None.
        lower: True if lower values are better.
        scales: True if the value depends on the speed of the machine.
    """

    value: float
    unit: str
    goal: float | None = None
    lower: bool = True
    scales: bool = True

    @property
    def reached(self) -> bool | None:
        """True if the goal is reached; None without a goal."""
        if self.goal is None:
            return None
        return self.value <= self.goal if self.lower else self.value >= self.goal

    def slowdown(self, earlier: float, speed: float = 1.0) -> float:
        """Return the ratio to an earlier value; above 1 is worse.

        Args:
            earlier: The value of the earlier release.
            speed: Speed of this machine as a multiple of the earlier one.
        """
        ratio = self.value / earlier if self.lower else earlier / self.value
        return ratio * speed if self.scales else ratio


_measured: dict[str, Figure] = {}


def record(name: str, figure: Figure) -> None:
    """Keep a figure for the table at the end."""
    _measured[name] = figure


@cache
def yardstick_ms() -> float:
    """Return the processor time of a fixed computation, a measure of this machine's speed."""
    times = []
    for _ in range(9):
        begun = time.process_time()
        sum(i * i % 7 for i in range(200_000))
        times.append((time.process_time() - begun) * 1000)
    return median(times)


def report(kept: Path = KEPT) -> None:
    """Print goal, figure and slowdown of everything that was recorded."""
    if not _measured:
        return
    earlier: dict[str, Any] = json.loads(kept.read_text("utf-8"))
    # The speed of the machine that measured an earlier release may be unknown: figures are then compared as they are.
    speed = earlier["yardstick_ms"] / yardstick_ms() if earlier["yardstick_ms"] else 1.0
    show(
        f"Figures against release {earlier['release']}",
        ["what", "goal", "figure", "unit", "", "then", "slowdown"],
        [_row(name, figure, earlier["figures"].get(name), speed) for name, figure in _measured.items()],
        f"slowdown: above 1 is slower; yardstick {yardstick_ms():.1f} ms, speed {speed:.2f} × that release's machine",
    )


def _row(name: str, figure: Figure, then: dict[str, Any] | None, speed: float) -> tuple[object, ...]:
    goal = "" if figure.goal is None else f"{'≤' if figure.lower else '≥'} {figure.goal:g}"
    met = {True: "reached", False: "NOT REACHED", None: ""}[figure.reached]
    slowdown = None if then is None else figure.slowdown(then["value"], speed)
    marked = "" if slowdown is None else f"{slowdown:.2f}{' SLOWER' if slowdown >= SLOWER else ''}"
    return name, goal, figure.value, figure.unit, met, "" if then is None else float(then["value"]), marked


def keep(release: str, kept: Path = KEPT) -> None:
    """Write the recorded figures as those of a release; figures that were not measured now stay."""
    figures = json.loads(kept.read_text("utf-8"))["figures"] if kept.exists() else {}
    figures |= {name: asdict(figure) for name, figure in _measured.items()}
    whole = {"release": release, "yardstick_ms": round(yardstick_ms(), 2), "figures": figures}
    kept.write_text(json.dumps(whole, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")
