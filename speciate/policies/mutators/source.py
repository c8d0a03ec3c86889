"""Represent a program with the places where the mutator's operators may edit it.

Positions are offsets into the UTF-8 bytes, as in ``ast``, so that an edit replaces exactly its own bytes and formatting
and comments survive. A program has hundreds of places, so they are named tuples, which are cheap to create. If a
program has EVOLVE-BLOCKs, only places inside them are included.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from statistics import median
from typing import NamedTuple

Scope = tuple[int, ...]
"""Path of nested functions and comprehensions; the names of a scope are visible in every scope that it is a prefix
of."""


class Span(NamedTuple):
    """Bytes ``start`` to ``end`` of a program."""

    start: int
    end: int


class SourceEdit(NamedTuple):
    span: Span
    text: bytes


class Number(NamedTuple):
    """A numeric constant, including its sign."""

    span: Span
    value: int | float
    """Its value; an int stays an int under every operator."""
    structural: bool = False
    """True if it is an index, slice or size, where changes rarely survive."""


class Operator(NamedTuple):
    """An operator with its possible replacements."""

    span: Span
    choices: tuple[bytes, ...]


class Expression(NamedTuple):
    """An expression in load context."""

    span: Span
    scope: Scope
    atomic: bool
    """True if it needs no parentheses inside another expression."""
    parts: tuple[Span, ...] = ()


class Statement(NamedTuple):
    """A statement on lines of its own."""

    span: Span
    """Its lines, including the last line end."""
    margin: bytes
    body: int
    """Number of the statement list that it belongs to."""
    alone: bool
    """True if that list has no other statement."""


@dataclass(frozen=True)
class Source:
    """A program and its places."""

    data: bytes
    numbers: tuple[Number, ...] = ()
    operators: tuple[Operator, ...] = ()
    expressions: tuple[Expression, ...] = ()
    statements: tuple[Statement, ...] = ()
    elements: tuple[tuple[Span, ...], ...] = ()
    """The elements of each list, tuple or set display that has at least two, in order."""
    definitions: Mapping[str, Span] = field(default_factory=dict)
    regions: tuple[Span, ...] = ()
    """Insides of the EVOLVE-BLOCKs, or the whole program if it has none."""
    is_python: bool = True
    """True if it was parsed as a program, else as text."""

    @cached_property
    def number_weights(self) -> Sequence[float]:
        return list(accumulate(0.15 if number.structural else 1.0 for number in self.numbers))

    @cached_property
    def element_weights(self) -> Sequence[int]:
        return list(accumulate(len(elements) ** 2 for elements in self.elements))

    @cached_property
    def floats(self) -> Sequence[int]:
        return [i for i, number in enumerate(self.numbers) if isinstance(number.value, float)]

    @cached_property
    def scale(self) -> float:
        """Median magnitude of the floats: the unit of absolute steps."""
        sizes = [abs(self.numbers[i].value) for i in self.floats if self.numbers[i].value]
        return float(median(sizes)) if sizes else 1.0

    def cut(self, span: Span) -> bytes:
        return self.data[span.start : span.end]


def applied(data: bytes, edits: Iterable[SourceEdit]) -> bytes:
    """Return the bytes after the edits, whose spans must not overlap."""
    parts: list[bytes] = []
    position = 0
    for edit in sorted(edits, key=lambda edit: edit.span.start):
        parts += (data[position : edit.span.start], edit.text)
        position = edit.span.end
    return b"".join([*parts, data[position:]])
