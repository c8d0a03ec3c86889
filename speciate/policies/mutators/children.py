"""Make a child of given parents: draw operators, apply them, and reject invalid children."""

from __future__ import annotations

import ast
import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

import numpy as np

from speciate.domain.values import MAX_PROGRAM_BYTES
from speciate.policies.mutators.covariance import spread
from speciate.policies.mutators.crossover import cross
from speciate.policies.mutators.numbers import StepSizes, perturb, swap_words
from speciate.policies.mutators.reading import read_source
from speciate.policies.mutators.source import Source, SourceEdit, applied
from speciate.policies.mutators.structure import change_elements, change_expression, change_operator, change_statement
from speciate.prompts.python_source import read_python

_ATTEMPTS: Final = 8

Operation = Callable[[Source, np.random.Generator], list[SourceEdit]]


@dataclass(frozen=True, slots=True)
class OperatorRates:
    """Relative rates of the operators.

    Attributes:
        constants: Numeric constants; grows with their number.
        operators: Operators and comparisons.
        expressions: Expressions.
        statements: Statements.
        elements: Elements of lists, tuples and sets.
        crossover: Probability of recombination when there is a second parent.
        covariance: Probability of a step along the differences of similar programs, if there are any.
        steps: Step sizes of constants.
    """

    constants: float
    operators: float
    expressions: float
    statements: float
    elements: float
    crossover: float
    covariance: float
    steps: StepSizes


def child_of(
    programs: Sequence[str], rates: OperatorRates, edits: int, rng: np.random.Generator, others: Sequence[str] = ()
) -> str:
    """Return a child.

    Returns:
        A text that differs from the parent and, if the parent is Python (or JSON), is Python (or JSON). The parent
        itself if no operator applies.
    """
    text = programs[0]
    if rates.covariance and len(programs) + len(others) > 1 and rng.random() < rates.covariance:
        similar = [read_source(other) for other in (*programs[1:], *others)]
        text = _tried(text, lambda source, rng: spread(source, similar, rng), rng, checked=False)
        if text != programs[0]:
            return text
    if len(programs) > 1 and rng.random() < rates.crossover:
        mate = read_source(programs[1 + int(rng.integers(len(programs) - 1))])
        text = _tried(text, lambda source, rng: cross(source, mate, rng), rng, checked=True)
        edits -= text != programs[0]
    for _ in range(edits):
        text = _edited(text, rates, rng)
    return text


def _edited(text: str, rates: OperatorRates, rng: np.random.Generator) -> str:
    for _ in range(_ATTEMPTS):
        operation, checked = _operation(read_source(text), rates, rng)
        child = _tried(text, operation, rng, checked=checked)
        if child != text:
            return child
    return text


def _operation(source: Source, rates: OperatorRates, rng: np.random.Generator) -> tuple[Operation, bool]:
    """Draw an applicable operator; also return True if its children must be checked."""

    def step(source: Source, rng: np.random.Generator) -> list[SourceEdit]:
        return perturb(source, rates.steps, rng)

    # Each constant is a coordinate to tune, so the rate grows with their number.
    tuning = rates.constants * (1 + len(source.numbers) / 4) * bool(source.numbers)
    if not source.is_python:
        return (step, True) if rng.random() * (tuning + 1) < tuning else (swap_words, True)
    listed = 0.0 if source.floats else sum(map(len, source.elements)) / 4
    weights = (
        (step, tuning),
        (change_operator, rates.operators * bool(source.operators)),
        (change_expression, rates.expressions * bool(source.expressions)),
        (change_statement, rates.statements * bool(source.statements)),
        (change_elements, rates.elements * (1 + listed) * bool(source.elements)),
    )
    sums = list(accumulate(weight for _, weight in weights))
    position = min(bisect_right(sums, rng.random() * sums[-1]), len(weights) - 1)
    return weights[position][0], position > 0


def _tried(text: str, operation: Operation, rng: np.random.Generator, *, checked: bool) -> str:
    """Return the child that an operator makes of a text, or the text itself if the child is invalid."""
    source = read_source(text)
    child = applied(source.data, operation(source, rng)).decode("utf-8", "replace")
    if child == text or len(child) > MAX_PROGRAM_BYTES or (checked and not _usable(source, text, child)):
        return text
    return child


def _usable(source: Source, parent: str, child: str) -> bool:
    if source.is_python:
        return isinstance(read_python(child), ast.Module)
    return bool(child.strip()) and (not _is_json(parent) or _is_json(child))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
