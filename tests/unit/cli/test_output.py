"""Progress as lines, where no bar can move."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from speciate.cli import output


def test_progress_lines_tell_only_news(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter((0.0, 3.0, 12.0, 30.0, 50.0, 51.0))
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    stream = io.StringIO()
    lines = output.ProgressLines(Console(file=stream, width=80))
    for text, ended in (("too early", False), ("one", False), ("one", False), ("two", False), ("two", True)):
        lines.show([text], ended=ended)
    assert stream.getvalue().split("\n") == ["one", "two", "two", ""]
