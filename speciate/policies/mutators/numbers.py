"""Change numeric constants by small or large steps, one or several together.

The mutator is stateless. Step sizes are drawn log-uniformly over several decades: whatever scale a run needs at a
stage, a fixed share of the children has it.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np

from speciate.policies.mutators.source import Number, Source, SourceEdit, Span

_DIGITS: Final = 12
_RELOCATED: Final = 0.12
_INT_LIMIT: Final = 10**15

Sigmas = tuple[float, float]
"""The smallest and the largest step, as shares of the value or of the typical value."""


def perturb(source: Source, sigmas: Sigmas, rng: np.random.Generator) -> list[SourceEdit]:
    if not source.numbers:
        return []
    weights = source.number_weights
    anchor = min(bisect_right(weights, rng.random() * weights[-1]), len(weights) - 1)
    if isinstance(source.numbers[anchor].value, int):
        return _change_ints(source, anchor, rng)
    if len(source.floats) > 2 and rng.random() < _RELOCATED:
        return [_relocated(source, anchor, rng)]
    indices = _together(source, anchor, rng)
    low, high = map(math.log, sigmas)
    sigma, relative = math.exp(rng.uniform(low, high)), rng.random() < 0.5
    sizes = [abs(source.numbers[position].value) for position in indices]
    units = [sigma * (size if relative and size else source.scale) for size in sizes]
    moves = rng.standard_normal(len(indices))
    # The length of the step does not depend on the number of constants that share it.
    share = 1 / math.sqrt(len(indices))
    return [
        written(source.numbers[position], source.numbers[position].value + share * unit * float(move))
        for position, unit, move in zip(indices, units, moves, strict=True)
    ]


def written(number: Number, value: float) -> SourceEdit:
    """Return the edit that sets a constant to a new value of its own type; a non-finite value leaves it unchanged."""
    if isinstance(number.value, int):
        text = str(max(-_INT_LIMIT, min(_INT_LIMIT, int(value))))
    else:
        short = rounded(value)
        text = repr(short if math.isfinite(short) and abs(short) < 1e300 else float(number.value))
    return SourceEdit(number.span, text.encode())


def rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


def _relocated(source: Source, anchor: int, rng: np.random.Generator) -> SourceEdit:
    """Move a float to any point between two others, which steps cannot reach from far away."""
    one, two = (source.numbers[source.floats[int(rng.integers(len(source.floats)))]].value for _ in range(2))
    return written(source.numbers[anchor], one + float(rng.random()) * (two - one))


def _together(source: Source, anchor: int, rng: np.random.Generator) -> Sequence[int]:
    """Choose the floats that move in one step: one, a few neighbours, a few anywhere, or all."""
    floats = source.floats
    kind = rng.random()
    if kind < 0.5 or len(floats) == 1:
        return [anchor]
    if kind < 0.7:
        # Neighbours in the text often belong together, such as the coordinates of a point.
        at = floats.index(anchor)
        return floats[max(0, at - int(rng.integers(3))) : at + 1 + int(rng.integers(3))]
    if kind < 0.93:
        few = min(len(floats), 2 + int(rng.geometric(0.4)))
        return [floats[i] for i in rng.permutation(len(floats))[:few]]
    return floats


def _change_ints(source: Source, anchor: int, rng: np.random.Generator) -> list[SourceEdit]:
    number = source.numbers[anchor]
    peers = [i for i, other in enumerate(source.numbers) if isinstance(other.value, int) and not other.structural]
    kind = rng.random()
    if not number.structural and len(peers) > 2 and kind < 0.4:
        other = peers[int(rng.integers(len(peers)))]
        if kind < 0.2 and other != anchor:
            return [written(number, source.numbers[other].value), written(source.numbers[other], number.value)]
        return [written(number, source.numbers[other].value)]
    return [written(number, _stepped(number, rng))]


def _stepped(number: Number, rng: np.random.Generator) -> float:
    size = 1 if rng.random() < 0.6 else max(1, round(abs(number.value) * abs(float(rng.standard_normal())) * 0.3))
    value = number.value + (size if rng.random() < 0.5 else -size)
    # An index or size that was not negative stays non-negative.
    return abs(value) if number.structural and number.value >= 0 else value


def swap_words(source: Source, rng: np.random.Generator) -> list[SourceEdit]:
    inside = (i for low, high in source.regions for i in range(low, high))
    places = [i for i in inside if chr(source.data[i]).isalnum() and source.data[i] < 128]
    if not places:
        return []
    at = places[int(rng.integers(len(places)))]
    letter = source.data[(other := places[int(rng.integers(len(places)))]) : other + 1]
    match int(rng.integers(4)):
        case 0:
            return [SourceEdit(Span(at, at + 1), letter)]
        case 1:
            return [SourceEdit(Span(at, at + 1), b"")]
        case 2:
            return [SourceEdit(Span(at, at), letter)]
        case _ if at != other:
            return [SourceEdit(Span(at, at + 1), letter), SourceEdit(Span(other, other + 1), source.data[at : at + 1])]
        case _:
            return []
