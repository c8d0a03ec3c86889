"""Make a child of given parents: draw operators, apply them, and reject invalid children."""

import ast
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

import numpy as np

from speciate.domain.values import MAX_PROGRAM_BYTES
from speciate.policies.mutators.crossover import cross
from speciate.policies.mutators.numbers import Sigmas, perturb, swap_words
from speciate.policies.mutators.options import ProgramMutatorOptions
from speciate.policies.mutators.reading import read_source
from speciate.policies.mutators.source import Source, SourceEdit, applied
from speciate.policies.mutators.structure import change_elements, change_expression, change_operator, change_statement
from speciate.policies.numbers import read_json
from speciate.prompts.python_source import read_python

_ATTEMPTS: Final = 8

Operation = Callable[[Source, np.random.Generator], list[SourceEdit]]


def child_of(
    programs: Sequence[str],
    options: ProgramMutatorOptions,
    edits: int,
    rng: np.random.Generator,
    *,
    heavy: bool = False,
) -> str:
    """Return a child of the first program, of the same kind; the parent itself if no operator applies."""
    text = programs[0]
    if len(programs) > 1 and rng.random() < options.crossover:
        mate = read_source(programs[1 + int(rng.integers(len(programs) - 1))])
        text = _tried(text, lambda source, rng: cross(source, mate, rng), rng, checked=True)
        edits -= text != programs[0]
    sigmas = options.sigmas(heavy=heavy)
    for _ in range(edits):
        text = _edited(text, options, sigmas, rng)
    return text


def _edited(text: str, options: ProgramMutatorOptions, sigmas: Sigmas, rng: np.random.Generator) -> str:
    for _ in range(_ATTEMPTS):
        operation, checked = _operation(read_source(text), options, sigmas, rng)
        child = _tried(text, operation, rng, checked=checked)
        if child != text:
            return child
    return text


def _operation(
    source: Source, options: ProgramMutatorOptions, sigmas: Sigmas, rng: np.random.Generator
) -> tuple[Operation, bool]:
    """Draw an applicable operator; also return True if its children must be checked."""

    def step(source: Source, rng: np.random.Generator) -> list[SourceEdit]:
        return perturb(source, sigmas, rng)

    # Each constant is a coordinate to tune, so the rate grows with their number.
    tuning = options.constants * (1 + len(source.numbers) / 4) * bool(source.numbers)
    if not source.is_python:
        return (step, True) if rng.random() * (tuning + 1) < tuning else (swap_words, True)
    listed = 0.0 if source.floats else sum(map(len, source.elements)) / 4
    weights = (
        (step, tuning),
        (change_operator, options.operators * bool(source.operators)),
        (change_expression, options.expressions * bool(source.expressions)),
        (change_statement, options.statements * bool(source.statements)),
        (change_elements, options.elements * (1 + listed) * bool(source.elements)),
    )
    sums = list(accumulate(weight for _, weight in weights))
    position = min(bisect_right(sums, rng.random() * sums[-1]), len(weights) - 1)
    return weights[position][0], position > 0


def _tried(text: str, operation: Operation, rng: np.random.Generator, *, checked: bool) -> str:
    source = read_source(text)
    child = applied(source.data, operation(source, rng)).decode("utf-8", "replace")
    if child == text or len(child) > MAX_PROGRAM_BYTES or (checked and not _usable(source, text, child)):
        return text
    return child


def _usable(source: Source, parent: str, child: str) -> bool:
    if source.is_python:
        return isinstance(read_python(child), ast.Module)
    return bool(child.strip()) and (read_json(parent) is None or read_json(child) is not None)
