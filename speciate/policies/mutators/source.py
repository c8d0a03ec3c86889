"""A program with the places where it may be edited: the map that every operator of the mutator reads.

Positions are offsets into the UTF-8 bytes (what ``ast`` counts in), so that an edit replaces exactly its own bytes and
formatting and comments survive. A program has hundreds of places, so they are named tuples: cheap to make. Only places
the EVOLVE-BLOCKs are on the map when a program has some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from statistics import median
from typing import NamedTuple

Scope = tuple[int, ...]
"""Path of nested functions and comprehensions; names of a prefix are visible in what it is a prefix of."""


class Span(NamedTuple):
    """Bytes ``start`` to ``end`` of a program."""

    start: int
    end: int


class SourceEdit(NamedTuple):
    """A replacement of the bytes of a span."""

    span: Span
    text: bytes


class Number(NamedTuple):
    """A numeric constant, with its sign.

    Attributes:
        span: Where it stands.
        value: Its value; an int stays an int under every operator.
        structural: Whether it indexes, slices or sizes something, where changes rarely survive.
    """

    span: Span
    value: int | float
    structural: bool = False


class Operator(NamedTuple):
    """An operator sign with the signs that may take its place."""

    span: Span
    choices: tuple[bytes, ...]


class Expression(NamedTuple):
    """An expression that is read.

    Attributes:
        span: Where it stands.
        scope: Whose names it may use.
        atomic: Whether it needs no parentheses inside another expression.
        parts: Sub-expressions that may take its place.
    """

    span: Span
    scope: Scope
    atomic: bool
    parts: tuple[Span, ...] = ()


class Statement(NamedTuple):
    """A statement on lines of its own.

    Attributes:
        span: Its lines, the last line end included.
        margin: Its indentation.
        body: Which list of statements it belongs to.
        alone: Whether that list would be empty without it.
    """

    span: Span
    margin: bytes
    body: int
    alone: bool


@dataclass(frozen=True)
class Source:
    """A program and its places.

    Attributes:
        data: The program in UTF-8.
        numbers: Numeric constants, in order.
        operators: Operators.
        expressions: Expressions.
        statements: Statements, in order.
        elements: For each display of two or more elements (list, tuple, set): the elements, in order.
        definitions: Spans of functions and classes by name.
        regions: Insides of the EVOLVE-BLOCKs, or the whole program when it has none.
        is_python: Whether it was read as a program; else as text.
    """

    data: bytes
    numbers: tuple[Number, ...] = ()
    operators: tuple[Operator, ...] = ()
    expressions: tuple[Expression, ...] = ()
    statements: tuple[Statement, ...] = ()
    elements: tuple[tuple[Span, ...], ...] = ()
    definitions: Mapping[str, Span] = field(default_factory=dict)
    regions: tuple[Span, ...] = ()
    is_python: bool = True

    @cached_property
    def number_weights(self) -> Sequence[float]:
        """Running sums of how readily each number is chosen."""
        return list(accumulate(0.15 if number.structural else 1.0 for number in self.numbers))

    @cached_property
    def element_weights(self) -> Sequence[int]:
        """Running sums of how readily each display is chosen: a list of pairs more than one of its pairs."""
        return list(accumulate(len(elements) ** 2 for elements in self.elements))

    @cached_property
    def floats(self) -> Sequence[int]:
        """Positions among ``numbers`` of the floats."""
        return [i for i, number in enumerate(self.numbers) if isinstance(number.value, float)]

    @cached_property
    def scale(self) -> float:
        """Typical size of the floats: the unit of absolute steps."""
        sizes = [abs(self.numbers[i].value) for i in self.floats if self.numbers[i].value]
        return float(median(sizes)) if sizes else 1.0

    def cut(self, span: Span) -> bytes:
        """Return the bytes of a span."""
        return self.data[span.start : span.end]


def applied(data: bytes, edits: Iterable[SourceEdit]) -> bytes:
    """Return the bytes with the edits made; their spans must not overlap."""
    parts: list[bytes] = []
    position = 0
    for edit in sorted(edits, key=lambda edit: edit.span.start):
        parts += (data[position : edit.span.start], edit.text)
        position = edit.span.end
    return b"".join([*parts, data[position:]])
