"""Feature cells: programs of different shapes do not compete, which keeps the archive diverse.

A cell is a bin on every chosen feature, named such as ``length:2,nesting:1`` (MAP-Elites, Mouret and Clune 2015,
arXiv 1504.04909). Features cost a few microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from speciate.domain.candidate import Individual
from speciate.domain.objective import ObjectiveRole
from speciate.domain.problem import Problem


class Feature(StrEnum):
    """Measures of a program's shape or behaviour."""

    LENGTH = "length"
    """Characters, in steps of √2 from the seed program's (or 1,024): bin 2 is as long as the seed."""
    NESTING = "nesting"
    """Deepest indentation, in levels of four columns or one tab."""
    RECORD = "record"
    """The first objective of role ``record``, in even steps over its declared range; not available without one."""


Measure = Callable[[Individual, Problem, int], int | None]
"""``(candidate, problem, bins)`` to a bin, unclipped; None if the problem has no such feature."""

_SEPARATOR: Final = ":"
_USUAL_LENGTH: Final = 1024
_SEED_BIN: Final = 2
_LEVEL: Final = " " * 4
# Bounds the cost of hostile candidates.
_READ_CHARACTERS: Final = 64 << 10


def feature_cell(candidate: Individual, problem: Problem, features: Sequence[Feature], bins: int) -> str | None:
    """Return the name of a candidate's cell, or None if no feature applies."""
    measured = ((feature, _MEASURES[feature](candidate, problem, bins)) for feature in features)
    parts = [f"{f}{_SEPARATOR}{min(max(value, 0), bins - 1)}" for f, value in measured if value is not None]
    return ",".join(parts) or None


def _length(candidate: Individual, problem: Problem, bins: int) -> int:  # noqa: ARG001 - one signature for all
    usual = len(problem.seed_program) or _USUAL_LENGTH
    return math.floor(2.0 * math.log2(max(1, len(candidate.program)) / usual) + 0.5) + _SEED_BIN


def _nesting(candidate: Individual, problem: Problem, bins: int) -> int:  # noqa: ARG001
    # Searching for an indented line of each depth takes a tenth of the time of a loop over lines.
    text = "\n" + candidate.program[:_READ_CHARACTERS].replace("\t", _LEVEL)
    return next((level for level in range(bins) if "\n" + _LEVEL * (level + 1) not in text), bins)


def _record(candidate: Individual, problem: Problem, bins: int) -> int | None:
    for value, objective in zip(candidate.vector, problem.objectives, strict=True):
        if objective.role is ObjectiveRole.RECORD:
            low, high = objective.range
            # Clip before converting to an integer: a recorded value may lie anywhere.
            return math.floor(bins * min(max((value - low) / (high - low), 0.0), 1.0))
    return None


_MEASURES: Final[dict[Feature, Measure]] = {
    Feature.LENGTH: _length,
    Feature.NESTING: _nesting,
    Feature.RECORD: _record,
}
