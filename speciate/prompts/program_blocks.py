"""Choose the program among the code blocks of an answer, and put the blocks in front of it that it needs.

Models draft first and answer last, but also end with a usage example, a test or a quote; they give imports, constants
and helpers in blocks of their own.
"""

import ast
import re
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from speciate.domain.values import MAX_PROGRAM_BYTES
from speciate.prompts.fences import sections
from speciate.prompts.python_source import DEFINITIONS, Names, defined_names, names_of, read_python, statements

_MOST_BLOCKS: Final = 256
_MOST_TRIED: Final = 8
_MOST_JOINED: Final = 24
_FUTURE: Final = re.compile(r"(?m)^from __future__ import [\w, ]+$")
_BEGUN: Final = re.compile(r"\b(?:def|class) (\w+)")
_ELISION: Final = re.compile(
    r"[ \t]*+(?:(?:#|//|/\*|--|%)[ \t]*+)?(?:\.\.\.|…)[ \t]*+"
    r"(?:$|.*\b(?:rest|remaining|remains|existing|unchanged|same|omitted|previous|others?|before|here|above|code)\b)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Names that a program has to define."""

    names: frozenset[str]
    """Functions and classes that callers expect."""
    base: str = ""
    """The program that it changes, or the part of it that may change."""
    available: frozenset[str] = frozenset()
    """Names that text around the program provides."""


def is_python(text: str) -> bool:
    return len(text) <= MAX_PROGRAM_BYTES and isinstance(read_python(text), ast.Module)


def elision_in(text: str, base: str = "") -> str | None:
    """Return the first line that stands for code left out, such as ``# ... rest unchanged``, unless the base has it."""
    if "..." not in text and "…" not in text:
        return None
    own = {line.strip() for line in base.split("\n")}
    lines = (line.strip() for line in text.split("\n") if _ELISION.match(line))
    return next((line for line in lines if line not in own), None)


def last_long(texts: Sequence[str]) -> str:
    longest = max(map(len, texts))
    return [text for text in texts if 2 * len(text) >= longest][-1]


def best_program(texts: Sequence[str], expected: Wanted) -> str:
    """Return the last complete program among several blocks, joined with the blocks that it needs.

    A program is complete if it and the blocks that it needs define all names that it uses and all expected names that
    the answer defines. Without a complete one the last with all expected names is chosen, else the last with one of
    them, else of those that define anything the last one at least half as long as the longest.
    """
    if len(texts) == 1:
        return texts[0]
    blocks = _Blocks([text for text in texts[-_MOST_BLOCKS:] if is_python(text)])
    if not blocks.texts:
        return max(texts, key=len)
    makers = blocks.makers(expected.names)
    quotes = set(makers[-_MOST_TRIED:]) & blocks.quoting(expected) if len(makers) > 1 else set()
    for i in reversed([i for i in makers[-_MOST_TRIED:] if i not in quotes] or makers[-_MOST_TRIED:]):
        order = blocks.order(i, expected)
        if blocks.complete(order, expected):
            return blocks.joined(order)
    fitting = [i for i in makers if expected.names <= blocks.names[i].bound] or makers
    if not fitting:
        defining = [text for text in blocks.texts if defined_names(text)]
        fitting = [blocks.texts.index(last_long(defining or blocks.texts))]
    return blocks.joined(blocks.order(fitting[-1], expected))


def separate_programs(texts: Sequence[str], expected: Wanted) -> list[str]:
    """Return a program for each block that defines an expected name; if none does, every block."""
    blocks = _Blocks([text if is_python(text) else "" for text in texts[-_MOST_BLOCKS:]])
    makers = blocks.makers(expected.names)[:_MOST_TRIED]
    if not makers or len(makers) == len(texts):
        return [*texts]
    return [blocks.joined(blocks.order(i, expected, before=i)) for i in makers]


def answer_groups(groups: Sequence[Sequence[str]], expected: Wanted) -> list[list[str]]:
    """Return the blocks of each answer of a set, whose separators may stand within a block.

    Groups that do not define an expected name, such as examples and outputs, are left out, unless all are of this kind.
    """
    answers: list[list[str]] = []
    for group in groups:
        answers.append([])
        for text in group:
            first, *further = [text] if is_python(text) else sections(text) or [text]
            answers[-1].append(first)
            answers += [[each] for each in further]
    return [each for each in answers if any(_defines(text, expected) for text in each)] or answers


def _defines(text: str, expected: Wanted) -> bool:
    """Return True if a text binds an expected name, or tries to: one that does not parse is an answer, too."""
    if is_python(text):
        return not expected.names.isdisjoint(names_of(text).bound)
    return not expected.names.isdisjoint(_BEGUN.findall(text))


def versions(text: str, expected: Wanted) -> list[str]:
    """Return a program for each definition of an expected name that a block repeats, with what stands before them."""
    own = [node for node in statements(text) if isinstance(node, DEFINITIONS) and node.name in expected.names]
    name, count = max(Counter(node.name for node in own).items(), key=lambda item: item[1], default=("", 0))
    repeated = [node for node in own if node.name == name]
    if count < 2 or any(node.decorator_list for node in repeated):  # overloads belong together
        return [text]
    lines = text.split("\n")
    starts = [node.lineno - 1 for node in repeated]
    shared = lines[: starts[0]]
    return ["\n".join([*shared, *lines[start:end]]) for start, end in zip(starts, [*starts[1:], None], strict=True)]


class _Blocks:
    """Blocks of an answer that are Python, by position."""

    def __init__(self, texts: list[str]) -> None:
        self.texts = texts
        self.names: list[Names] = [names_of(text) for text in texts]
        self._places: dict[str, list[int]] = defaultdict(list)
        for i, names in enumerate(self.names):
            for name in names.bound:
                self._places[name].append(i)

    def makers(self, required: frozenset[str]) -> list[int]:
        """Return the blocks that define a required name, or the first that imports one: an example imports it later."""
        makers = [i for i, names in enumerate(self.names) if not required.isdisjoint(names.written)]
        return makers or [i for i, names in enumerate(self.names) if not required.isdisjoint(names.bound)][:1]

    def quoting(self, expected: Wanted) -> set[int]:
        """Return the blocks that define wanted names only as the base does."""
        old = _definitions(expected.base, expected.names)
        new = [(i, _definitions(self.texts[i], expected.names)) for i in self.makers(expected.names)[-_MOST_TRIED:]]
        return {i for i, own in new if own and own.items() <= old.items()}

    def order(self, last: int, expected: Wanted, *, before: int | None = None) -> list[int]:
        """Return the blocks that a block needs, in the order of their needs, and itself as the last.

        The last block that binds a name provides it, if possible one at a position below ``before``.
        """
        order, opened, stack = list[int](), {last}, [(last, False)]
        needs = self.names[last].free | ((expected.names & self._places.keys()) - self.names[last].bound)
        while stack:
            i, provided = stack.pop()
            if provided:
                order.append(i)
                continue
            stack.append((i, True))
            for name in sorted((needs if i == last else self.names[i].free) - expected.available):
                places = self._places.get(name, [])
                own = bisect_left(places, i)
                places = [*places[:own], *places[own + 1 :]] if own < len(places) and places[own] == i else places
                if places and len(opened) < _MOST_JOINED:
                    provider = places[(bisect_left(places, before) if before is not None else 0) - 1]
                    # A block that shows or tests a wanted name without its definition provides nothing.
                    if provider not in opened and expected.names.isdisjoint(self.names[provider].early):
                        opened.add(provider)
                        stack.append((provider, False))
        return order

    def complete(self, order: Sequence[int], expected: Wanted) -> bool:
        bound = frozenset[str]().union(*(self.names[i].bound for i in order))
        needed = frozenset[str]().union(*(self.names[i].free for i in order)) | (expected.names & self._places.keys())
        return needed <= bound | expected.available and not any(elision_in(self.texts[i], expected.base) for i in order)

    def joined(self, order: Sequence[int]) -> str:
        """Return the blocks as one program; definitions that a later block replaces are left out."""
        if len(order) == 1:
            return self.texts[order[0]]
        last = self.names[order[-1]]
        parts, replaced = [self.texts[order[-1]]], last.written - last.free
        for i in reversed(order[:-1]):
            parts.append(_without_checks(self.texts[i], replaced))
            replaced = (replaced | self.names[i].written) - self.names[i].free
        program = "\n\n".join(part.strip("\n") for part in reversed(parts) if part.strip()) + "\n"
        return "".join(f"{line}\n" for line in _FUTURE.findall(program)) + _FUTURE.sub("", program)


def _definitions(text: str, names: frozenset[str]) -> dict[str, str]:
    definitions = [node for node in statements(text) if isinstance(node, DEFINITIONS) and node.name in names]
    try:
        return {node.name: ast.dump(node) for node in definitions}
    except RecursionError:
        return {}


def _without_checks(text: str, replaced: frozenset[str]) -> str:
    """Return a block without statements that print, assert or run as a script, and without the named definitions."""
    body, lines = statements(text), text.split("\n")
    ends = Counter(line for node in body for line in {node.lineno, node.end_lineno or node.lineno})
    for node in body:
        start, end = node.lineno, node.end_lineno or node.lineno
        alone = ends[start] == ends[end] == 1
        if alone and (_is_check(node) or (isinstance(node, DEFINITIONS) and node.name in replaced)):
            if isinstance(node, DEFINITIONS) and node.decorator_list:
                start = node.decorator_list[0].lineno
            lines[start - 1 : end] = [""] * (end - start + 1)
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines))


def _is_check(node: ast.stmt) -> bool:
    match node:
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))) | ast.Assert():
            return True
        case ast.If(test=ast.Compare(left=ast.Name(id="__name__"))):
            return True
    return False
