"""Recombine two parents: constants, sub-expressions, definitions, whole regions."""

import numpy as np

from speciate.policies.mutators.numbers import written
from speciate.policies.mutators.source import Number, Source, SourceEdit
from speciate.policies.mutators.structure import operand, pick


def cross(first: Source, second: Source, rng: np.random.Generator) -> list[SourceEdit]:
    """Return edits that copy a part of the second parent into the first; empty if they have nothing in common."""
    if first.data == second.data:
        return []
    kinds = (cross_numbers, cross_numbers, cross_definitions, cross_expressions, cross_regions)
    start = int(rng.integers(len(kinds)))
    for offset in range(len(kinds)):
        if edits := kinds[(start + offset) % len(kinds)](first, second, rng):
            return edits
    return []


def cross_numbers(first: Source, second: Source, rng: np.random.Generator) -> list[SourceEdit]:
    """Mix the constants of two programs that have the same number of them.

    Either a run of constants is copied, or each is copied with probability 1/2, or all floats move along the line
    through both parents and up to a quarter beyond (BLX-0.25; Eshelman & Schaffer 1993).
    """
    pairs = _differing_numbers(first, second)
    if not pairs:
        return []
    match int(rng.integers(3)):
        case 0:
            start, end = sorted(int(i) for i in rng.integers(len(pairs), size=2))
            return [written(a, b.value) for a, b in pairs[start : end + 1]]
        case 1:
            copied = rng.random(len(pairs)) < 0.5
            return [written(a, b.value) for (a, b), copy in zip(pairs, copied, strict=True) if copy]
        case _:
            share = rng.uniform(-0.25, 1.25)
            return [written(a, a.value + share * (b.value - a.value)) for a, b in pairs]


def cross_definitions(first: Source, second: Source, rng: np.random.Generator) -> list[SourceEdit]:
    names = [n for n, span in first.definitions.items() if _other(first, second, n) not in (None, first.cut(span))]
    if not names:
        return []
    name = pick(names, rng)
    return [SourceEdit(first.definitions[name], second.cut(second.definitions[name]))]


def cross_expressions(first: Source, second: Source, rng: np.random.Generator) -> list[SourceEdit]:
    if not first.expressions or not second.expressions:
        return []
    return [SourceEdit(pick(first.expressions, rng).span, operand(second, pick(second.expressions, rng)))]


def cross_regions(first: Source, second: Source, rng: np.random.Generator) -> list[SourceEdit]:
    if len(first.regions) != len(second.regions) or len(first.regions) < 2:
        return []
    at = int(rng.integers(len(first.regions)))
    return [SourceEdit(first.regions[at], second.cut(second.regions[at]))]


def _differing_numbers(first: Source, second: Source) -> list[tuple[Number, Number]]:
    """Return pairs of corresponding constants with different values; empty if counts or types differ."""
    if len(first.numbers) != len(second.numbers):
        return []
    pairs = [(a, b) for a, b in zip(first.numbers, second.numbers, strict=True) if a.value != b.value]
    return [] if any(type(a.value) is not type(b.value) for a, b in pairs) else pairs


def _other(first: Source, second: Source, name: str) -> bytes | None:
    here, there = first.definitions[name], second.definitions.get(name)
    return None if there is None or _margin(first, here.start) != _margin(second, there.start) else second.cut(there)


def _margin(source: Source, start: int) -> int:
    return start - (source.data.rfind(b"\n", 0, start) + 1)
