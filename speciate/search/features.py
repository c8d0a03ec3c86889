"""Feature cells: programs of different shapes do not compete, so that the archive holds unlike ways to solve a problem.

A cell is a bin on every chosen feature, named such as ``length:2,nesting:1`` (MAP-Elites, Mouret and Clune 2015,
arXiv 1504.04909). All features but ``depth`` cost some microseconds; ``depth`` parses the program.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from speciate.domain.objective import Role
from speciate.domain.problem import Problem
from speciate.search.strategy import Evaluated


class Feature(StrEnum):
    """What can tell programs apart."""

    LENGTH = "length"
    """Characters, in steps of √2 from the seed program's (or 1,024): bin 2 is as long as the seed."""
    NESTING = "nesting"
    """Deepest indentation, in levels of four columns or one tab."""
    DEPTH = "depth"
    """Depth of the syntax tree in threes, where the text is Python; bin 0 where it is not. About 1 ms for 3 kB."""
    RECORD = "record"
    """The first objective of role ``record``, in even steps over its declared range; no feature without one."""


Measure = Callable[[Evaluated, Problem, int], int | None]
"""``(candidate, problem, bins)`` to a bin, unclipped; None where the problem has no such feature."""

_SEPARATOR: Final = ":"
_USUAL_LENGTH: Final = 1024
_SEED_BIN: Final = 2
_LEVEL: Final = " " * 4
_DEPTH_STEP: Final = 3
# What a candidate costs must not grow with what a hostile one sends.
_READ_CHARACTERS: Final = 64 << 10


def feature_cell(candidate: Evaluated, problem: Problem, features: Sequence[Feature], bins: int) -> str | None:
    """Return the name of the cell that a candidate falls into, or None when no feature applies.

    Args:
        candidate: Whose cell is asked for.
        problem: The problem it answers.
        features: In the order of the name.
        bins: Bins of each feature; what lies outside falls into the first or the last one.
    """
    measured = ((feature, _MEASURES[feature](candidate, problem, bins)) for feature in features)
    parts = [f"{f}{_SEPARATOR}{min(max(value, 0), bins - 1)}" for f, value in measured if value is not None]
    return ",".join(parts) or None


def is_feature_cell(cell: str) -> bool:
    """Tell whether a cell's name is that of a feature cell."""
    return _SEPARATOR in cell


def syntax_depth(text: str) -> int | None:
    """Return the depth of a Python program's syntax tree, counted from 1; None when the text is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an odd escape in a candidate is no one's business here
            level: list[ast.AST] = [ast.parse(text)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    depth = 0
    while level:
        depth += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


def _length(candidate: Evaluated, problem: Problem, bins: int) -> int:  # noqa: ARG001 - one signature for all
    usual = len(problem.seed_program) or _USUAL_LENGTH
    return math.floor(2.0 * math.log2(max(1, len(candidate.program)) / usual) + 0.5) + _SEED_BIN


def _nesting(candidate: Evaluated, problem: Problem, bins: int) -> int:  # noqa: ARG001
    # Looking for an indented line of each depth in turn takes a tenth of the time of reading every line.
    text = "\n" + candidate.program[:_READ_CHARACTERS].replace("\t", _LEVEL)
    return next((level for level in range(bins) if "\n" + _LEVEL * (level + 1) not in text), bins)


def _depth(candidate: Evaluated, problem: Problem, bins: int) -> int:  # noqa: ARG001
    if len(candidate.program) > _READ_CHARACTERS:
        return 0
    return (syntax_depth(candidate.program) or 0) // _DEPTH_STEP


def _record(candidate: Evaluated, problem: Problem, bins: int) -> int | None:
    for value, objective in zip(candidate.rewards, problem.objectives, strict=True):
        if objective.role is Role.RECORD:
            low, high = objective.range
            # Clipped before it becomes an integer: a record may be as far out of its range as it likes.
            return math.floor(bins * min(max((value - low) / (high - low), 0.0), 1.0))
    return None


_MEASURES: Final[dict[Feature, Measure]] = {
    Feature.LENGTH: _length,
    Feature.NESTING: _nesting,
    Feature.DEPTH: _depth,
    Feature.RECORD: _record,
}
