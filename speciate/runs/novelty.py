"""Which programs of a batch are new, found before any of them is evaluated.

Duplicates are found by ``shape``, a digest of the syntax tree; near-duplicates by the Jaccard index of their sets of
token shingles (Broder, "On the resemblance and containment of documents", 1997), computed exactly: the sets of a
window are small, so that nothing would be gained by sketches of them.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter
from typing import Final, cast

import numpy as np
import numpy.typing as npt

from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.novelty import DuplicateRule, Novelty
from speciate.ports.work import RunContext, WorkStore
from speciate.prompts.python_source import parse_python

NEAR_DUPLICATE: Final = "near_duplicate"
"""Reason of a program that is rejected because it is too much like an earlier one."""

# What a candidate costs must not grow with what a hostile one sends: longer programs are compared by text alone.
_READ_CHARACTERS: Final = 64 << 10
_COMPARED_CHARACTERS: Final = 32 << 10
_READS_DOCSTRINGS: Final = ("__doc__", "inspect")
_DOCUMENTED: Final = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")

Shingles = npt.NDArray[np.int64]
"""Sorted, without repeats; equal shingles have equal numbers within one process."""


def shape_of(context: RunContext, program: str) -> str | None:
    """Return 32 hexadecimal digits that the same programs share, or None where only equal texts are the same.

    Comments, layout, brackets and quotes are no part of a syntax tree. Docstrings are left out as well, unless the
    program mentions what reads them.
    """
    if context.spec.novelty.duplicate_rule(context.problem) is DuplicateRule.TEXT or len(program) > _READ_CHARACTERS:
        return None
    tree = parse_python(program)
    if isinstance(tree, Failure):
        return None
    documented = any(word in program for word in _READS_DOCSTRINGS)
    try:
        return hashlib.sha256(_flat(tree, documented=documented).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    except ValueError:  # an integer of more digits than Python writes
        return None


def _node_types(kind: type[ast.AST]) -> set[type[ast.AST]]:
    return {kind}.union(*(_node_types(below) for below in kind.__subclasses__()))


def _flat(tree: ast.Module, *, documented: bool) -> str:
    """Return a text of a parsed tree that no other tree has; as ``ast.dump``, but at any depth."""
    parts: list[object] = []
    left: list[object] = [tree]
    while left:
        item = left.pop()
        kind = type(item)
        if kind in _NODES:
            name, children = _NODES[kind]
            parts.append(name)
            values = children(item)
            left.extend(values if documented or kind not in _DOCUMENTED else _undocumented(item, values))
        elif kind is list:
            items = cast("list[object]", item)
            parts.append(len(items))
            left.extend(items)
        else:
            parts.append((item,))
    return repr(parts)


def _undocumented(node: object, values: Sequence[object]) -> list[object]:
    body = cast("ast.Module", node).body
    return [_without_docstring(body) if value is body else value for value in values]


def _children_of(fields: tuple[str, ...]) -> Callable[[object], Sequence[object]]:
    if len(fields) > 1:
        return attrgetter(*fields)
    return lambda node: [getattr(node, field) for field in fields]


# Every program that is answered comes by here: what a node has is looked up once for its type.
_NODES: Final = {kind: (kind.__name__, _children_of(kind._fields)) for kind in _node_types(ast.AST)}


def _drop_docstrings(tree: ast.Module) -> None:
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            node.body = _without_docstring(node.body)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    value = body[0].value if body and isinstance(body[0], ast.Expr) else None
    return body[1:] if isinstance(value, ast.Constant) and isinstance(value.value, str) else body


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """An earlier program that another one is too much like.

    Attributes:
        number: Its candidate's number.
        similarity: Jaccard index of the two sets of shingles.
    """

    number: int
    similarity: float

    def failure(self) -> Failure:
        """Return what the later one is rejected with."""
        detail = f"{self.similarity:.0%} like candidate {self.number}"
        return Failure(FailureKind.REJECTED, NEAR_DUPLICATE, detail)


class Neighbours:
    """The programs that those of a batch are compared with: the latest, the elites of their islands, and each other.

    At most ``window`` of the first and of the second kind, and none above 32 Ki characters, so that a comparison takes
    bounded time and memory.
    """

    def __init__(self, context: RunContext, work: WorkStore, islands: Collection[int], first: int) -> None:
        """Read them; nothing is read for a run that rejects none.

        Args:
            context: The run.
            work: Where its population is.
            islands: Islands of the batch's new programs.
            first: Number of the batch's first candidate.
        """
        self._rule: Novelty = context.spec.novelty
        self._python = context.problem.is_python
        self._known: dict[int, Shingles] = {}
        if self._rule.near is None or not islands:
            return
        numbers = set(range(max(1, first - self._rule.window), first))
        for island in islands:
            # The latest ones: fitness of different cells cannot be compared.
            elites = np.unique(work.elites(context.run_id, island).numbers)[-self._rule.window :]
            numbers.update(elites.tolist())
        for member in work.members(context.run_id, sorted(numbers)).values():
            # A small change of a program that failed may be what mends it.
            if member.rewards is not None:
                self.add(member.number, member.program)

    def add(self, number: int, program: str) -> None:
        """Compare later programs with this one as well."""
        if self._rule.near is not None and len(program) <= _COMPARED_CHARACTERS:
            self._known[number] = _shingles(program, self._rule.shingle, self._python)

    def nearest(self, program: str) -> NearDuplicate | None:
        """Return the program that this one is most like, the earliest among equals; None when it is new enough."""
        if self._rule.near is None or len(program) > _COMPARED_CHARACTERS:
            return None
        mine = _shingles(program, self._rule.shingle, self._python)
        found: NearDuplicate | None = None
        for number, theirs in sorted(self._known.items()):
            small, large = sorted((len(mine), len(theirs)))
            # Sets of such sizes cannot be more alike than this.
            if small / large < self._rule.near:
                continue
            common = len(np.intersect1d(mine, theirs, assume_unique=True))
            similarity = common / (small + large - common)
            if similarity >= self._rule.near and (found is None or similarity > found.similarity):
                found = NearDuplicate(number, similarity)
        return found


@lru_cache(maxsize=512)
def _shingles(program: str, size: int, python: bool) -> Shingles:
    """Return the numbers of a program's shingles; never empty: a program of few tokens is one shingle."""
    tokens = tuple(_TOKEN.findall(_normal(program) if python else program))
    starts = range(max(1, len(tokens) - size + 1))
    return np.unique(np.array([hash(tokens[i : i + size]) for i in starts], dtype=np.int64))


def _normal(program: str) -> str:
    """Return a Python program without comments and docstrings, in one layout; as it is where it cannot be read."""
    tree = parse_python(program)
    if isinstance(tree, Failure):
        return program
    _drop_docstrings(tree)
    try:
        return ast.unparse(tree)
    except (RecursionError, ValueError):
        return program
