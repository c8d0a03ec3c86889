"""Parse untrusted Python without executing it."""

from __future__ import annotations

import ast
import warnings
from functools import lru_cache
from typing import Final

from speciate.domain.candidate import Failure
from speciate.domain.files import FilesError, heading, sections_of
from speciate.prompts.rejection import Reason, rejected

_FILE: Final = heading("")[:12]
_TRIES: Final = 10
_PASSIVE: Final = (ast.Expr, ast.Pass)
_KEPT_TREES: Final = 4
_KEPT_CHARACTERS: Final = 32 << 10  # a tree takes a few hundred times the memory of its text


def parse_python(text: str) -> ast.Module | Failure:
    """Return the syntax tree, or the failure ``syntax_error`` with line and message."""
    with warnings.catch_warnings():
        # Invalid escape sequences in candidates do not belong in our log.
        warnings.simplefilter("ignore")
        try:
            return _tree(text)
        except SyntaxError as error:
            return rejected(Reason.SYNTAX_ERROR, f"line {error.lineno or '?'}: {error.msg}")
        except (ValueError, RecursionError, MemoryError, OverflowError) as error:
            # Null bytes, surrogates, too many digits, nesting deeper than the parser's stack.
            return rejected(Reason.SYNTAX_ERROR, f"the parser gave up: {type(error).__name__}")


def read_python(text: str) -> ast.Module | Failure:
    """Return what ``parse_python`` does; a program is parsed once for all of its checks. Do not change the tree."""
    return _kept(text) if len(text) <= _KEPT_CHARACTERS else parse_python(text)


_kept = lru_cache(maxsize=_KEPT_TREES)(parse_python)

_CLOSING: Final = frozenset(")]}")
_MOST_CUTS: Final = 8


def _tree(text: str) -> ast.Module:
    for _ in range(_TRIES - 1):
        try:
            return ast.parse(text)
        except SystemError:
            # CPython 3.11 shares its nesting counter between threads, so concurrent parsing may raise this error.
            continue
    return ast.parse(text)


def is_program(text: str) -> bool:
    """Return True if a text is Python with effect; a one-word sentence would also parse."""
    tree = read_python(text)
    return isinstance(tree, ast.Module) and any(not isinstance(node, _PASSIVE) for node in tree.body)


def defined_names(text: str) -> frozenset[str]:
    """Return the top-level functions and classes of a program; empty if it does not parse."""
    tree = read_python(text)
    if isinstance(tree, Failure):
        return frozenset()
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return frozenset(node.name for node in tree.body if isinstance(node, definitions))


def complete_part(text: str, needed: frozenset[str]) -> str | None:
    """Return the leading top-level statements of a program that breaks off, without the last one.

    Args:
        text: The program.
        needed: Functions and classes that the part must define.

    Returns:
        The part, or None if it lacks one of them or does not parse either.
    """
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if line[:1] and not line[0].isspace() and line[0] not in _CLOSING]
    for end in starts[: -_MOST_CUTS - 1 : -1]:
        part = "\n".join(lines[:end]).rstrip() + "\n"
        names = defined_names(part)
        if names:
            return part if needed <= names else None
    return None


def shape_key(text: str) -> str:
    """Return a key that is equal for programs with equal syntax trees (or, if they do not parse, equal texts)."""
    try:
        files = sections_of(text) if text.startswith(_FILE) else {}
    except FilesError:
        files = {}
    if len(files) > 1:  # names and contents of files are part of the shape
        return "\n".join(f"{heading(name)}\n{shape_key(section)}" for name, section in sorted(files.items()))
    tree = read_python(text)
    if isinstance(tree, Failure):
        return text.strip()
    try:
        return ast.dump(tree)
    except RecursionError:
        return text.strip()
