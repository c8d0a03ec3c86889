"""Improve the numbers of a program, one after the other, by what earlier steps of the run tell.

Rosenbrock's coordinate search (1960, section 3): a step that improved is followed at once by a larger one of the same
number, a step that did not by one in the other direction, and two that did not by the step to the top of the parabola
through both, or by smaller ones. Nothing is kept between requests: steps, and whose turn it is, are read from the
programs of the same shape and their rewards, whoever wrote them. So answers may arrive in any order, or never, and the
same record gives the same proposals.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, islice
from typing import Final

import numpy as np

from speciate.domain.candidate import Individual
from speciate.policies.mutators.numbers import rounded, written
from speciate.policies.mutators.reading import read_source
from speciate.policies.mutators.source import Number, Source, SourceEdit, applied

_GROWTH: Final = 3.0
"""Next step after one that improved."""
_SHRINKAGE: Final = 0.4
"""Next step after two that did not, one in each direction."""
_TELLING: Final = 4.0
"""A failed step that is larger than the next one by more than this factor tells nothing about it."""
_LEAST: Final = 1e-5
"""Step, as a share of the first one, after which a number starts again with the first one."""
_JITTER: Final = 0.1
"""Standard deviation of the logarithm of a step, without which requests in flight would repeat each other."""
_MERGED: Final = 0.5
"""Probability of a program that unites the improvements of several children of its parent, if there are any."""
_WIDE: Final = (0.03, 3.0)
"""Range of the steps of a program that starts anew, in first steps."""
_ABYSS: Final = 100.0
"""Loss, in ranges of the objectives, that is due to a failure or an infeasible program."""
_SMALL: Final = 0.3
"""Share of the typical value that counts as the value of a smaller number."""
_MOST_FLOAT: Final = 1e299
_MOST_INT: Final = 10**14
_TRIES: Final = 50

Values = tuple[int | float, ...]


@dataclass(frozen=True, slots=True)
class _Point:
    """A program of the shape of the one to improve; ``parent`` is the number of its first parent, 0 for none."""

    parent: int
    reward: float
    numbers: Values


@dataclass(slots=True)
class _Step:
    """What the record tells about one number."""

    size: float
    """Signed size of the next step."""
    turn: float
    """Steps are made in the order of their turns."""
    failures: int = 0
    """Steps since the last improvement."""
    last: tuple[float, float] = (0.0, -math.inf)
    """Size and gain of the last step."""


def polished(
    program: str, number: int, relatives: Sequence[tuple[Individual, float]], most: int, share: float, seed: int
) -> list[str]:
    """Return at most ``most`` programs with other numbers; none if the program has no numbers.

    The program is candidate ``number`` of the run. ``relatives`` are itself, its ancestors and their children, each
    with its reward. ``share`` is the first step of a float, as a share of its value.
    """
    source, rng = read_source(program), np.random.default_rng(seed)
    if not source.numbers:
        return []
    points = {
        each.number: _Point(next(iter(each.parents), 0), reward, _values(each.program))
        for each, reward in relatives
        if _shape(each.program) == _shape(program)
    }
    steps, moves = _steps(source, points, share, rng), _unmerged(number, points)
    seen, children = {_values(program), *(point.numbers for point in points.values())}, list[Values]()
    for child in islice(_children(source, moves, steps, rng), most + _TRIES * len(steps)):
        if len(children) == most:
            break
        if child not in seen:
            seen.add(child)
            children.append(child)
    return [_with(source, child) for child in children]


def scattered(program: str, share: float, rng: np.random.Generator) -> str:
    """Return a program with all numbers changed, for a new start; itself if it has none."""
    source = read_source(program)
    low, high = _WIDE
    size = low * (high / low) ** float(rng.random())
    firsts = [_first_step(source, each, share) for each in source.numbers]
    # Integers are often counts, of which few may change together.
    firsts = [step / 2 if isinstance(n.value, int) else step for n, step in zip(source.numbers, firsts, strict=True)]
    moves = (size * rng.standard_normal(len(firsts)) * firsts).tolist()
    return _with(source, [_sum(number, number.value, move) for number, move in zip(source.numbers, moves, strict=True)])


def _children(
    source: Source, moves: Mapping[int, float], steps: Sequence[_Step], rng: np.random.Generator
) -> Iterator[Values]:
    """Yield programs with the united moves of other children, or with one step each."""
    base, numbers = tuple(number.value for number in source.numbers), source.numbers
    if moves and rng.random() < _MERGED:
        yield tuple(_moved(numbers[i], each, moves[i], rng) if i in moves else each for i, each in enumerate(base))
    order = sorted(rng.permutation(len(base)).tolist(), key=lambda i: steps[i].turn)
    for round_ in count():
        for i in order:
            size = steps[i].size
            if round_:  # every number has had its step, so any other size is as good
                size *= 10 ** rng.uniform(-1.5, 0.7 + round_ / 10) * rng.choice((-1, 1))
            yield (*base[:i], _moved(numbers[i], base[i], size, rng), *base[i + 1 :])


def _moved(number: Number, value: int | float, size: float, rng: np.random.Generator) -> int | float:
    """Return a value after a step; an integer moves by 1 at least."""
    size *= math.exp(_JITTER * rng.standard_normal())
    return _sum(number, value, size if isinstance(value, float) else round(size) or math.copysign(1, size))


def _sum(number: Number, value: int | float, size: float) -> int | float:
    """Return a value after a step as it will be written; a size or index that was not negative stays so."""
    if isinstance(value, float):
        return rounded(max(-_MOST_FLOAT, min(_MOST_FLOAT, value + size)))
    total = max(-_MOST_INT, min(_MOST_INT, value + round(size)))
    return abs(total) if number.structural and number.value >= 0 else total


def _steps(source: Source, points: Mapping[int, _Point], share: float, rng: np.random.Generator) -> list[_Step]:
    firsts = [_first_step(source, each, share) for each in source.numbers]
    # Most integers are no quantities, so they come last.
    turns = [-1.0 if isinstance(each.value, int) else -2.0 for each in source.numbers]
    steps = [_Step(step * float(rng.choice((-1, 1))), turn) for step, turn in zip(firsts, turns, strict=True)]
    for key, point in points.items():
        parent = points.get(point.parent)
        if parent is None or len(moves := _moves(parent, point)) != 1:
            continue
        ((i, size),) = moves.items()
        step, gain = steps[i], point.reward - parent.reward
        if gain > 0:
            step.size, step.failures, step.turn = _GROWTH * size, 0, -math.inf
        elif step.turn < 0 or abs(size) <= _TELLING * abs(step.size):
            step.failures += 1
            step.size = -size if step.failures % 2 else _smaller(size, gain, *step.last)
            if abs(step.size) < _LEAST * firsts[i]:
                step.size = math.copysign(firsts[i], step.size)
            step.turn = key
        step.last = size, gain
    return steps


def _smaller(size: float, gain: float, other: float, other_gain: float) -> float:
    """Return the step to the top of the parabola through two opposite steps; a smaller one if it lies elsewhere."""
    if size * other < 0 and min(gain, other_gain) > -_ABYSS:
        curvature = 2 * (size * other_gain - other * gain)
        top = (size * size * other_gain - other * other * gain) / curvature if curvature else 0.0
        shorter = min(abs(size), abs(other))
        if 0.05 * shorter < abs(top) < shorter:
            return top
    return -_SHRINKAGE * size


def _unmerged(number: int, points: Mapping[int, _Point]) -> dict[int, float]:
    """Return the best steps from the parent that other children made, and this one did not, by position."""
    this = points.get(number)
    parent = points.get(this.parent) if this else None
    if this is None or parent is None:
        return {}
    own, best = _moves(parent, this), dict[int, tuple[float, float]]()
    if any(each.parent == number and len(_moves(this, each)) > 1 for each in points.values()):
        return {}
    for point in points.values():
        if point.parent == this.parent and point.reward > parent.reward:
            moves = _moves(parent, point)
            if len(moves) == 1 and not own.keys() & moves.keys():
                ((i, size),) = moves.items()
                best[i] = max(best.get(i, (-math.inf, size)), (point.reward, size))
    return {i: size for i, (_, size) in best.items()}


def _moves(before: _Point, after: _Point) -> dict[int, float]:
    return {i: b - a for i, (a, b) in enumerate(zip(before.numbers, after.numbers, strict=True)) if a != b}


def _first_step(source: Source, number: Number, share: float) -> float:
    """Return 1 for an integer; a zero moves by a share of the typical value."""
    if isinstance(number.value, int):
        return 1.0
    return share * (max(abs(number.value), _SMALL * source.scale) if number.value else source.scale)


def _with(source: Source, values: Sequence[int | float]) -> str:
    pairs = zip(source.numbers, values, strict=True)
    edits = [written(number, value) for number, value in pairs if value != number.value]
    return applied(source.data, edits).decode("utf-8", "replace")


@lru_cache(maxsize=1024)
def _shape(program: str) -> tuple[int, bytes]:
    numbers = (source := read_source(program)).numbers
    return len(numbers), applied(source.data, (SourceEdit(number.span, b"0") for number in numbers))


@lru_cache(maxsize=1024)
def _values(program: str) -> Values:
    return tuple(number.value for number in read_source(program).numbers)
