"""Edit the structure of a program: operators, expressions, statements, elements of displays."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from speciate.policies.mutators.source import Expression, Source, SourceEdit, Span, Statement

T = TypeVar("T")

_WRAPPERS = (
    b"abs(%s)", b"max(%s, %s)", b"min(%s, %s)", b"(%s + %s)", b"(%s - %s)", b"(%s * %s)", b"(%s * 2)", b"(%s / 2)",
)  # fmt: skip


def pick(items: Sequence[T], rng: np.random.Generator) -> T:
    return items[int(rng.integers(len(items)))]


def change_operator(source: Source, rng: np.random.Generator) -> list[SourceEdit]:
    operator = pick(source.operators, rng)
    return [SourceEdit(operator.span, pick(operator.choices, rng))]


def change_expression(source: Source, rng: np.random.Generator) -> list[SourceEdit]:
    """Replace an expression by another visible one, by a part of itself, or by a combination of both."""
    target = pick(source.expressions, rng)
    kind = rng.random()
    if kind < 0.35 and target.parts:
        return [SourceEdit(target.span, b"(%b)" % source.cut(pick(target.parts, rng)))]
    donor = pick([e for e in source.expressions if target.scope[: len(e.scope)] == e.scope], rng)
    if kind < 0.7:
        return [SourceEdit(target.span, operand(source, donor))]
    wrapper = pick(_WRAPPERS, rng)
    parts = (operand(source, target), operand(source, donor))[: wrapper.count(b"%s")]
    return [SourceEdit(target.span, wrapper % parts)]


def operand(source: Source, expression: Expression) -> bytes:
    """Return an expression's text, in parentheses if it needs them inside another expression."""
    text = source.cut(expression.span)
    return text if expression.atomic else b"(%b)" % text


def change_statement(source: Source, rng: np.random.Generator) -> list[SourceEdit]:
    statement = pick(source.statements, rng)
    match int(rng.integers(3)):
        case 0:
            return [SourceEdit(statement.span, statement.margin + b"pass\n" if statement.alone else b"")]
        case 1:
            return [SourceEdit(Span(statement.span.end, statement.span.end), _whole_lines(source, statement))]
        case _:
            return _exchange(source, statement)


def change_elements(source: Source, rng: np.random.Generator) -> list[SourceEdit]:
    if not source.elements:
        return []
    weights = source.element_weights
    elements = source.elements[bisect_right(weights, int(rng.integers(weights[-1])))]
    at = int(rng.integers(len(elements)))
    other = int(rng.integers(len(elements)))
    one, two = elements[at], elements[other]
    match int(rng.integers(4)):
        case 0:
            return [_without(elements, at)]
        case 1:
            return [SourceEdit(Span(two.start, two.start), source.cut(one) + b", ")]
        case 2 if at != other:
            return [SourceEdit(one, source.cut(two)), SourceEdit(two, source.cut(one))]
        case 3 if other not in (at, at + 1) and at + 1 < len(elements):
            return [_without(elements, at), SourceEdit(Span(two.start, two.start), source.cut(one) + b", ")]
        case _:
            return []


def _without(elements: Sequence[Span], at: int) -> SourceEdit:
    if at + 1 < len(elements):
        return SourceEdit(Span(elements[at].start, elements[at + 1].start), b"")
    return SourceEdit(Span(elements[at - 1].end, elements[at].end), b"")


def _exchange(source: Source, statement: Statement) -> list[SourceEdit]:
    following = (s for s in source.statements if s.body == statement.body and s.span.start >= statement.span.end)
    if (other := next(following, None)) is None:
        return []
    return [
        SourceEdit(statement.span, _whole_lines(source, other)),
        SourceEdit(other.span, _whole_lines(source, statement)),
    ]


def _whole_lines(source: Source, statement: Statement) -> bytes:
    text = source.cut(statement.span)
    return text if text.endswith((b"\n", b"\r")) else text + b"\n"
