"""Improve the numbers of a program, one after the other, by what earlier steps of the run tell.

Rosenbrock's coordinate search (1960, section 3): a step that improved is followed by a larger one of the same number,
a step that did not by one in the other direction, then by smaller ones. Nothing is kept between requests: steps, and
whose turn it is, are read from the programs of the same shape and their rewards, whoever wrote them. So answers may
arrive in any order, or never, and the same record gives the same proposals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice
from typing import Final

import numpy as np

from speciate.policies.mutators.numbers import written
from speciate.policies.mutators.reading import read_source
from speciate.policies.mutators.source import Number, Source, SourceEdit, applied
from speciate.ports.policy import Relative

_GROWTH: Final = 3.0
"""Next step after one that improved."""
_SHRINKAGE: Final = 0.4
"""Next step after two that did not, one in each direction."""
_TELLING: Final = 4.0
"""A failed step that is larger than the next one by more than this factor tells nothing about it."""
_LEAST: Final = 1e-5
"""Step, as a share of the first one, after which a number starts again with the first one."""
_JITTER: Final = 0.2
"""Standard deviation of the logarithm of a step, without which requests in flight would repeat each other."""
_MERGED: Final = 0.5
"""Probability of a program that unites the improvements of several children of its parent, if there are any."""
_WIDE: Final = (0.03, 3.0)
"""Range of the steps of a program that starts anew, in first steps."""
_TRIES: Final = 50

Values = tuple[int | float, ...]


@dataclass(slots=True)
class _Step:
    """What the relatives tell about one number."""

    size: float
    """Signed size of the next step."""
    turn: int = -1
    """Candidate that changed it last."""
    failures: int = 0
    """Steps since the last improvement."""


def polished(program: str, number: int, relatives: Sequence[Relative], most: int, share: float, seed: int) -> list[str]:
    """Return at most ``most`` programs with other numbers; none if the program has no numbers.

    Args:
        program: The program to improve, candidate ``number`` of the run.
        relatives: The program itself, its ancestors and their children.
        share: First step of a float, as a share of its value.
        seed: Of the random choices.
    """
    source, rng = read_source(program), np.random.default_rng(seed)
    if not source.numbers:
        return []
    points = {each.number: each for each in relatives if _shape(each.program) == _shape(program)}
    values = {key: _values(each.program) for key, each in points.items()} | {number: _values(program)}
    firsts = [_first_step(source, each, share) for each in source.numbers]
    steps = _steps(points, values, firsts, rng)
    seen = {*values.values()}
    children = list[str]()
    for child in islice(_children(number, points, values, steps, rng), most + _TRIES * len(firsts)):
        if len(children) == most:
            break
        text = _with(source, child)
        if (point := _values(text)) not in seen:
            seen.add(point)
            children.append(text)
    return children


def scattered(program: str, share: float, rng: np.random.Generator) -> str:
    """Return a program with all numbers changed, for a new start; itself if it has none."""
    source = read_source(program)
    low, high = _WIDE
    size = low * (high / low) ** float(rng.random())
    moves = size * rng.standard_normal(len(source.numbers))
    values = [
        each.value + _first_step(source, each, share) * (move if isinstance(each.value, float) else round(move / 2))
        for each, move in zip(source.numbers, moves.tolist(), strict=True)
    ]
    return _with(source, values)


def _children(
    number: int,
    points: Mapping[int, Relative],
    values: Mapping[int, Values],
    steps: Sequence[_Step],
    rng: np.random.Generator,
) -> Iterator[Values]:
    base = values[number]
    if (moves := _unmerged(number, points, values)) and rng.random() < _MERGED:
        yield tuple(_moved(value, moves[i], rng) if i in moves else value for i, value in enumerate(base))
    order = sorted(rng.permutation(len(base)).tolist(), key=lambda i: steps[i].turn)
    for round_ in count():
        for i in order:
            size = steps[i].size
            if round_:  # every number has had its step, so any other size is as good
                size *= 10 ** rng.uniform(-1.5, 0.7 + round_ / 10) * rng.choice((-1, 1))
            yield (*base[:i], _moved(base[i], size, rng), *base[i + 1 :])


def _moved(value: int | float, size: float, rng: np.random.Generator) -> int | float:
    """Return a value after a step; an integer moves by 1 at least."""
    size *= math.exp(_JITTER * rng.standard_normal())
    return value + (size if isinstance(value, float) else round(size) or round(math.copysign(1, size)))


def _steps(
    points: Mapping[int, Relative], values: Mapping[int, Values], firsts: Sequence[float], rng: np.random.Generator
) -> list[_Step]:
    """Replay the changes of one number, in order."""
    steps = [_Step(first * float(rng.choice((-1, 1)))) for first in firsts]
    for key, relative in points.items():
        parent = points.get(relative.parent)
        if parent is None or len(moves := _moves(values[parent.number], values[key])) != 1:
            continue
        ((i, size),) = moves.items()
        step = steps[i]
        if relative.value > parent.value:
            step.size, step.failures = _GROWTH * size, 0
        elif step.turn < 0 or abs(size) <= _TELLING * abs(step.size):
            step.failures += 1
            step.size = -size if step.failures % 2 else -_SHRINKAGE * size
            if abs(step.size) < _LEAST * firsts[i]:
                step.size = math.copysign(firsts[i], step.size)
        step.turn = key
    return steps


def _unmerged(number: int, points: Mapping[int, Relative], values: Mapping[int, Values]) -> dict[int, float]:
    """Return the best steps from the parent that other children made, and this one did not, by position."""
    parent = points.get(points[number].parent) if number in points else None
    if parent is None:
        return {}
    own, best = _moves(values[parent.number], values[number]), dict[int, tuple[float, float]]()
    for key, relative in points.items():
        if relative.parent == parent.number and relative.value > parent.value:
            moves = _moves(values[parent.number], values[key])
            if len(moves) == 1 and not own.keys() & moves.keys():
                ((i, size),) = moves.items()
                best[i] = max(best.get(i, (-math.inf, size)), (relative.value, size))
    return {i: size for i, (_, size) in best.items()}


def _moves(before: Values, after: Values) -> dict[int, float]:
    """Return the steps between two programs by position."""
    return {i: b - a for i, (a, b) in enumerate(zip(before, after, strict=True)) if a != b}


def _first_step(source: Source, number: Number, share: float) -> float:
    """Return 1 for an integer; a zero moves by a share of the typical value."""
    if isinstance(number.value, int):
        return 1.0
    return share * (max(abs(number.value), 0.1 * source.scale) if number.value else source.scale)


def _with(source: Source, values: Sequence[int | float]) -> str:
    """Return the program with other values; a size or index that was not negative stays so."""
    edits = [
        written(number, abs(value) if number.structural and number.value >= 0 else value)
        for number, value in zip(source.numbers, values, strict=True)
        if value != number.value
    ]
    return applied(source.data, edits).decode("utf-8", "replace")


@lru_cache(maxsize=1024)
def _shape(program: str) -> tuple[int, bytes]:
    numbers = (source := read_source(program)).numbers
    return len(numbers), applied(source.data, (SourceEdit(number.span, b"0") for number in numbers))


@lru_cache(maxsize=1024)
def _values(program: str) -> Values:
    return tuple(number.value for number in read_source(program).numbers)
