"""Serve a script that imports the candidate into its own process, as evaluators of other projects do.

First message: ``{"script": text, "functions": [name, ...], "records": [name, ...], "named": [name, ...], "seed": int,
"program": file}``, where ``named`` has all objectives: what is not among them becomes a note.
Then one ``{"function": name}`` for each stage, answered as ``author`` answers. The function takes the path of the
candidate's program and returns a dict of rewards, or an object with ``metrics`` and ``artifacts``. A candidate in this
process can write any answer, so it can forge its results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from .author import FOLDER, awaited, load_script, outcome_of, report, text_of
from .program import seed_generators
from .wire import Wire


def serve(wire: Wire) -> None:
    first = wire.read()
    if first is None:
        return
    sys.path.insert(0, str(Path.cwd()))
    path = Path(FOLDER, first["program"]).absolute()
    names = load_script(wire, first, first["seed"])
    while names is not None and (task := wire.read()) is not None:
        seed_generators(first["seed"])
        notes: list[tuple[str, str]] = []
        report(wire, outcome_of(partial(_measure, names[task["function"]], str(path), notes), first), notes)


def _measure(function: Callable[[str], Any], path: str, notes: list[tuple[str, str]]) -> Any:
    result = awaited(function(path))
    artifacts = getattr(result, "artifacts", None)
    if isinstance(artifacts, dict):
        texts = [(str(label), text_of(content)) for label, content in artifacts.items() if content is not None]
        notes += [(label, text) for label, text in texts if text.strip()]
    return getattr(result, "metrics", result)
