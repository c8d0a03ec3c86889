"""Figures of benchmarks: goals, and slowdowns against the figures kept in the repository."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from benchmarks import figures
from benchmarks.figures import KEPT, Figure


def test_goals_have_a_direction() -> None:
    assert [Figure(3, "s", 4).reached, Figure(5, "s", 4).reached, Figure(5, "s").reached] == [True, False, None]
    assert Figure(700, "/s", 600, lower=False).reached


def test_a_slowdown_is_above_one_and_allows_for_the_machine() -> None:
    assert Figure(3.0, "ms").slowdown(2.0) == pytest.approx(1.5)
    assert Figure(300, "/s", lower=False).slowdown(600) == pytest.approx(2.0)
    assert Figure(300, "/s", lower=False).slowdown(600, speed=0.5) == pytest.approx(1.0)
    assert Figure(1.1, "×", scales=False).slowdown(1.0, speed=0.5) == pytest.approx(1.1)


def test_a_slow_figure_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(figures, "_measured", {"a": Figure(2.0, "ms", 1.0)})
    kept = tmp_path / "figures.json"
    figures.keep("1.0", kept)
    monkeypatch.setattr(figures, "_measured", {"a": Figure(3.0, "ms", 1.0), "b": Figure(1.0, "s", 2.0)})
    figures.report(kept)
    shown = capsys.readouterr().out
    assert "1.50 SLOWER" in shown
    assert "NOT REACHED" in shown
    figures.keep("1.1", kept)
    assert [figure["value"] for figure in json.loads(kept.read_text())["figures"].values()] == [3.0, 1.0]


def test_the_kept_figures_can_be_read() -> None:
    for figure in json.loads(KEPT.read_text("utf-8"))["figures"].values():
        Figure(**figure)


def test_the_benchmark_of_searches_loads() -> None:
    """It uses names of the product that nothing else uses."""
    assert importlib.import_module("benchmarks.search").STRATEGIES
