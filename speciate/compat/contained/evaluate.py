"""Score a candidate with the imported evaluator, which lies unchanged in the folder ``data``.

Evaluators leave out rewards when a program fails or a cascade stops. A missing reward takes the worst value of its
range, as after a stage that did not run.
"""

import importlib
import os
import re
import sys
from dataclasses import dataclass
from typing import Any

WORST: dict[str, float] = {}
"""Worst value of each reward's range."""
OPTIONS: dict[str, Any] = {}
"""Options from the other system's configuration; ``writes_beside`` to work in a copy of the folder."""


@dataclass
class Result:
    """Result of an evaluation: numbers by name, and texts for users and prompts."""

    metrics: dict[str, float]
    artifacts: dict[str, Any]


def evaluate(program_path: str) -> Result:
    """Return the numbers that the evaluator measured, with a value for every name in ``WORST``."""
    folder = os.path.dirname(program_path)  # noqa: PTH120  # an import of pathlib for one name, in every evaluation
    if OPTIONS.get("writes_beside"):
        folder = _copied(folder)
        program_path = os.path.join(folder, os.path.basename(program_path))  # noqa: PTH118, PTH119
    os.chdir(folder)
    sys.path.insert(0, folder)
    measured, artifacts = importlib.import_module("speciate_adapter").measure(program_path, OPTIONS)
    numbers: dict[str, float] = {}
    for name, value in measured.items():
        number, identifier = number_in(value), re.sub(r"\W|^(?=\d)", "_", str(name), flags=re.ASCII)
        if number is None or identifier in numbers:
            artifacts[str(name)] = value
        else:
            numbers[identifier] = number
    if not numbers:
        raise ValueError(f"the evaluator measured no number: {_shown({**artifacts, **measured})}")
    if left_out := [name for name in WORST if name not in numbers]:
        artifacts["not measured"] = ", ".join(left_out)
    return Result({**WORST, **numbers}, artifacts)


def _copied(folder: str) -> str:
    """Return a copy of a folder that may be written to; it vanishes with the evaluation."""
    import shutil
    import tempfile

    try:
        copy = f"{tempfile.mkdtemp()}/data"
    except OSError as error:
        raise RuntimeError("the evaluator works in a copy of its folder: sandbox tier B has no room for it") from error
    shutil.copytree(folder, copy, copy_function=shutil.copyfile)
    return copy


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # a whole number of too many digits
        return str(list(value))


def number_in(value: Any) -> float | None:
    """Return a metric as a number, including booleans and numpy scalars; None if it is not a number."""
    if isinstance(value, str):
        return None  # float("1") succeeds, but "1" is a text
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None
