"""Find duplicates and near-duplicates before programs are evaluated.

Duplicates have the same ``shape``, a digest of the syntax tree. Near-duplicates are measured by the Jaccard index of
their sets of token shingles (Broder, "On the resemblance and containment of documents", 1997). It is computed exactly:
the sets of a window are small, so sketches would save nothing.
"""

import ast
import hashlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from speciate.domain.candidate import Failure, FailureKind
from speciate.domain.novelty import DuplicateRule, Novelty
from speciate.ports.work import RunContext, WorkStore
from speciate.prompts.python_source import parse_python, read_python

# Comparing a hostile candidate must stay cheap: longer programs are compared by text alone.
_READ_CHARACTERS: Final = 64 << 10
_COMPARED_CHARACTERS: Final = 32 << 10
_READS_DOCSTRINGS: Final = ("__doc__", "inspect")
_DOCUMENTED: Final = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_TOKEN: Final = re.compile(r"\w+|[^\w\s]")

Shingles = npt.NDArray[np.int64]
"""Hashes of shingles, sorted and unique. Equal shingles have equal hashes within one process."""


def shape_of(context: RunContext, program: str) -> str | None:
    """Return the digest of a program's syntax tree in 32 hexadecimal digits, or None if only texts are compared.

    Comments, layout, redundant parentheses and quotes do not affect a syntax tree. Docstrings are left out as well,
    unless the program mentions a way to read them.
    """
    if context.spec.novelty.duplicate_rule(context.problem) is DuplicateRule.TEXT or len(program) > _READ_CHARACTERS:
        return None
    tree = read_python(program)
    if isinstance(tree, Failure):
        return None
    documented = any(word in program for word in _READS_DOCSTRINGS)
    try:
        return hashlib.sha256(_flat(tree, documented=documented).encode("utf-8", "surrogatepass")).hexdigest()[:32]
    except ValueError:  # an integer of more digits than Python writes
        return None


def _flat(tree: ast.Module, *, documented: bool) -> str:
    """Return a unique text of a syntax tree. Unlike ``ast.dump``, it works at any depth."""
    parts: list[object] = []
    left: list[Any] = [tree]
    while left:
        item = left.pop()
        if isinstance(item, ast.AST):
            parts.append(type(item).__name__)
            values = [getattr(item, field) for field in item._fields]
            if not documented and isinstance(item, _DOCUMENTED):
                values[item._fields.index("body")] = _without_docstring(item.body)
            left.extend(values)
        elif isinstance(item, list):
            parts.append(len(item))
            left.extend(item)
        else:
            parts.append((item,))
    return repr(parts)


def _without_docstring(body: list[ast.stmt]) -> list[ast.stmt]:
    value = body[0].value if body and isinstance(body[0], ast.Expr) else None
    return body[1:] if isinstance(value, ast.Constant) and isinstance(value.value, str) else body


@dataclass(frozen=True, slots=True)
class NearDuplicate:
    """An earlier program to which another one is too similar."""

    number: int  # candidate number of the earlier program
    similarity: float  # Jaccard index of the two sets of shingles

    def failure(self) -> Failure:
        detail = f"{self.similarity:.0%} similar to candidate {self.number}"
        return Failure(FailureKind.REJECTED, "near_duplicate", detail)


class Neighbours:
    """The programs with which a batch is compared: the latest ones, the elites of its islands, and each other.

    Time and memory are bounded: at most ``window`` programs of the first and of the second kind, each of at most 32 Ki
    characters.
    """

    def __init__(self, context: RunContext, work: WorkStore, islands: Collection[int], first: int) -> None:
        """Read the programs. Reads nothing for a run that accepts near-duplicates."""
        self._rule: Novelty = context.spec.novelty
        self._python = context.problem.is_python
        self._known: dict[int, Shingles] = {}
        if self._rule.near is None or not islands:
            return
        numbers = set(range(max(1, first - self._rule.window), first))
        for island in islands:
            # Keep the latest elites, since the fitness of different cells cannot be compared.
            numbers.update(np.unique(work.elites(context.run_id, island).numbers)[-self._rule.window :].tolist())
        for member in work.members(context.run_id, sorted(numbers)).values():
            # Failed programs are left out: a small change may fix them.
            if member.rewards is not None:
                self.add(member.number, member.program)

    def add(self, number: int, program: str) -> None:
        """Compare later programs with this one as well."""
        if self._rule.near is not None and len(program) <= _COMPARED_CHARACTERS:
            self._known[number] = _shingles(program, self._rule.shingle, self._python)

    def nearest(self, program: str) -> NearDuplicate | None:
        """Return the most similar program, the earliest among equals; None if the program is new enough."""
        if self._rule.near is None or len(program) > _COMPARED_CHARACTERS:
            return None
        shingles = _shingles(program, self._rule.shingle, self._python)
        nearest: NearDuplicate | None = None
        for number, others in sorted(self._known.items()):
            small, large = sorted((len(shingles), len(others)))
            # The ratio of the sizes bounds the similarity from above.
            if small / large < self._rule.near:
                continue
            common = len(np.intersect1d(shingles, others, assume_unique=True))
            similarity = common / (small + large - common)
            if similarity >= self._rule.near and (nearest is None or similarity > nearest.similarity):
                nearest = NearDuplicate(number, similarity)
        return nearest


@lru_cache(maxsize=512)
def _shingles(program: str, size: int, python: bool) -> Shingles:
    """Return the shingles of a program. A program of few tokens has one shingle."""
    tokens = tuple(_TOKEN.findall(_normal(program) if python else program))
    starts = range(max(1, len(tokens) - size + 1))
    return np.unique(np.array([hash(tokens[i : i + size]) for i in starts], dtype=np.int64))


def _normal(program: str) -> str:
    """Return a Python program in a standard layout without comments and docstrings; unchanged if unparsable."""
    tree = parse_python(program)
    if isinstance(tree, Failure):
        return program
    for node in ast.walk(tree):
        if isinstance(node, _DOCUMENTED):
            node.body = _without_docstring(node.body)
    try:
        return ast.unparse(tree)
    except (RecursionError, ValueError):
        return program
