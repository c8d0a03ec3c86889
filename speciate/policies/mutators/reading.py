"""Parse a text into a ``Source``: a Python program if it is one, else text that contains numbers."""

import ast
import re
from functools import lru_cache
from typing import Final

from speciate.policies.mutators.source import Number, Source, Span
from speciate.policies.mutators.walk import Walker
from speciate.prompts.evolve_blocks import blocks_or_none
from speciate.prompts.python_source import parse_python

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_TEXT_NUMBER: Final = re.compile(rb"(?<![\w.-])-?\d{1,15}(?:\.\d{1,17})?(?:[eE][-+]?\d{1,2})?(?![\w.])")


@lru_cache(maxsize=512)
def read_source(text: str) -> Source:
    """Return the places of a program; cached, since parents are selected repeatedly."""
    data = text.encode("utf-8", "replace")
    tree = parse_python(text)
    # JSON and single words are Python expressions; a program has statements.
    if isinstance(tree, ast.Module) and not all(isinstance(node, ast.Expr) for node in tree.body):
        return _read_python(data, text, tree)
    return _read_text(data, text)


def _read_python(data: bytes, text: str, tree: ast.Module) -> Source:
    starts, regions = _starts(data), _regions(data, text)
    walker = Walker(data, starts, regions)
    try:
        walker.walk(tree)
    except RecursionError:
        return Source(data, regions=regions)
    return Source(
        data,
        numbers=tuple(sorted(walker.numbers, key=lambda number: number.span.start)),
        operators=tuple(walker.operators),
        expressions=tuple(walker.expressions),
        statements=tuple(walker.statements),
        elements=tuple(walker.elements),
        definitions=walker.definitions,
        regions=regions,
    )


def _read_text(data: bytes, text: str) -> Source:
    numbers = []
    regions = _regions(data, text)
    for match in _TEXT_NUMBER.finditer(data):
        if not any(low <= match.start() and match.end() <= high for low, high in regions):
            continue
        written = match.group()
        value = int(written) if written.lstrip(b"-").isdigit() else float(written)
        numbers.append(Number(Span(*match.span()), value))
    return Source(data, numbers=tuple(numbers), regions=regions, is_python=False)


def _starts(data: bytes) -> list[int]:
    return [0, *(end.end() for end in _LINE_END.finditer(data))]


def _regions(data: bytes, text: str) -> tuple[Span, ...]:
    starts = _starts(data)
    blocks = blocks_or_none(text)
    return tuple(Span(starts[block.start], starts[block.end - 1]) for block in blocks) or (Span(0, len(data)),)
