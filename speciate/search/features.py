"""Feature cells: programs of different shapes do not compete, which keeps the archive diverse.

A cell is a bin on every chosen feature, named such as ``length:2,nesting:1`` (MAP-Elites, Mouret and Clune 2015,
arXiv 1504.04909). Features cost a few microseconds, except ``depth``, which parses the program, and ``novelty``.
"""

import ast
import math
import re
import warnings
from collections.abc import Callable, Sequence
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import numpy as np

from speciate.domain.candidate import Individual
from speciate.domain.objective import ObjectiveRole
from speciate.domain.problem import Problem


class Feature(StrEnum):
    """Measures of a program's shape or behaviour."""

    LENGTH = "length"
    """Characters, in steps of √2 from the seed program's (or 1,024): bin 2 is as long as the seed."""
    NESTING = "nesting"
    """Deepest indentation, in levels of four columns or one tab."""
    DEPTH = "depth"
    """Depth of the Python syntax tree in steps of three; bin 0 for other texts. About 1 ms for 3 kB."""
    RECORD = "record"
    """The first ``record`` that is not held out, in even steps over its declared range; not available without one."""
    SIGNATURE = "signature"
    """The reward vector, rounded to three digits and hashed to a bin: programs with equal behaviour compete, as in the
    clusters of FunSearch (Romera-Paredes et al. 2024, Nature 625, Methods).
    """
    NOVELTY = "novelty"
    """Share of the program's token trigrams that the seed program lacks, in even steps. ¼ ms for 3 kB."""


Measure = Callable[[Individual, Problem, int], int | None]
"""``(candidate, problem, bins)`` to a bin, unclipped; None if the problem has no such feature."""

_USUAL_LENGTH: Final = 1024
_SEED_BIN: Final = 2
_LEVEL: Final = " " * 4
_DEPTH_STEP: Final = 3
# Bounds the cost of hostile candidates.
_READ_CHARACTERS: Final = 64 << 10
_WORD: Final = re.compile(r"\w+|[^\w\s]")


def feature_cell(candidate: Individual, problem: Problem, features: Sequence[Feature], bins: int) -> str | None:
    """Return the name of a candidate's cell, or None if no feature applies."""
    measured = ((feature, _MEASURES[feature](candidate, problem, bins)) for feature in features)
    parts = [f"{f}:{min(max(value, 0), bins - 1)}" for f, value in measured if value is not None]
    return ",".join(parts) or None


def syntax_depth(text: str) -> int | None:
    """Return the depth of a Python program's syntax tree, from 1; None if the text is not Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escape sequences in candidates are not our warnings
            level: list[ast.AST] = [ast.parse(text)]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    depth = 0
    while level:
        depth += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


def _length(candidate: Individual, problem: Problem, bins: int) -> int:  # noqa: ARG001 - one signature for all
    usual = len(problem.seed_program) or _USUAL_LENGTH
    return math.floor(2.0 * math.log2(max(1, len(candidate.program)) / usual) + 0.5) + _SEED_BIN


def _nesting(candidate: Individual, problem: Problem, bins: int) -> int:  # noqa: ARG001
    # Searching for an indented line of each depth takes a tenth of the time of a loop over lines.
    text = "\n" + candidate.program[:_READ_CHARACTERS].replace("\t", _LEVEL)
    return next((level for level in range(bins) if "\n" + _LEVEL * (level + 1) not in text), bins)


def _depth(candidate: Individual, problem: Problem, bins: int) -> int:  # noqa: ARG001
    long = len(candidate.program) > _READ_CHARACTERS
    return 0 if long else (syntax_depth(candidate.program) or 0) // _DEPTH_STEP


def _record(candidate: Individual, problem: Problem, bins: int) -> int | None:
    for value, objective in zip(candidate.vector, problem.objectives, strict=True):
        if objective.role is ObjectiveRole.RECORD and not objective.held_out:
            low, high = objective.range
            # Clip before converting to an integer: a recorded value may lie anywhere.
            return math.floor(bins * min(max((value - low) / (high - low), 0.0), 1.0))
    return None


def _signature(candidate: Individual, problem: Problem, bins: int) -> int:
    digits = np.round(problem.space.normalise([candidate.vector]), 3) + 0.0  # no minus zero
    return int.from_bytes(blake2b(digits.tobytes(), digest_size=8).digest()) % bins


def _novelty(candidate: Individual, problem: Problem, bins: int) -> int:
    runs = _runs(candidate.program[:_READ_CHARACTERS])
    unknown = runs - _runs(problem.seed_program[:_READ_CHARACTERS])
    return math.floor(bins * len(unknown) / max(1, len(runs)))


@lru_cache(maxsize=64)
def _runs(text: str) -> frozenset[tuple[str, str, str]]:
    words = _WORD.findall(text)
    return frozenset(zip(words, words[1:], words[2:], strict=False))


_MEASURES: Final[dict[Feature, Measure]] = {
    Feature.LENGTH: _length,
    Feature.NESTING: _nesting,
    Feature.DEPTH: _depth,
    Feature.RECORD: _record,
    Feature.SIGNATURE: _signature,
    Feature.NOVELTY: _novelty,
}
