"""Read a directory made for the command line of AlphaEvolve: ``initial_program.*``, ``evaluator.py`` and others.

The evaluator is a script that writes JSON to ``--output-file``: ``{"score": S}``, or a list ``scores`` of metrics, and
a list ``insights`` of texts. AlphaEvolve maximizes every metric.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from speciate.compat import Choice
from speciate.compat.draft import Draft, Objectives
from speciate.compat.folder import read_plain
from speciate.compat.reading import read_evaluated
from speciate.problems.unreadable import UnreadableError

_DESCRIPTION: Final = "problem_description.md"


def read(folder: Path, choice: Choice) -> Draft:
    try:
        description = read_plain(folder, _DESCRIPTION)
    except UnreadableError:
        description = ""
    draft = read_evaluated(
        folder,
        choice,
        "alphaevolve",
        seeds=("initial_program", "program"),
        evaluator="evaluator.py",
        without=_DESCRIPTION,
        description=description,
        adapter="alphaevolve_cli",
        undeclared=Objectives.ALL,
    )
    return replace(draft, options={**draft.options, "seed": draft.seed})
