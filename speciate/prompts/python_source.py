"""Parse untrusted Python without executing it."""

import ast
import builtins
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from speciate.domain.candidate import Failure
from speciate.domain.files import FilesError, heading, sections_of
from speciate.prompts.rejection import Reason, rejected

_FILE: Final = heading("")[:12]
_TRIES: Final = 10
_SHOWN_CHARACTERS: Final = 120
_KEPT_TREES: Final = 4
_KEPT_CHARACTERS: Final = 32 << 10  # a tree takes a few hundred times the memory of its text


def parse_python(text: str) -> ast.Module | Failure:
    with warnings.catch_warnings():
        # Invalid escape sequences in candidates do not belong in our log.
        warnings.simplefilter("ignore")
        try:
            return syntax_tree(text)
        except SyntaxError as error:
            source = f"\n{error.text.strip()[:_SHOWN_CHARACTERS]}" if error.text else ""
            return rejected(Reason.SYNTAX_ERROR, f"line {error.lineno or '?'}: {error.msg}{source}")
        except (ValueError, RecursionError, MemoryError, OverflowError) as error:
            # Null bytes, surrogates, too many digits, nesting deeper than the parser's stack.
            return rejected(Reason.SYNTAX_ERROR, f"the parser gave up: {type(error).__name__}")


def read_python(text: str) -> ast.Module | Failure:
    """Return what ``parse_python`` does; a program is parsed once for all of its checks. Do not change the tree."""
    return _kept(text) if len(text) <= _KEPT_CHARACTERS else parse_python(text)


_kept = lru_cache(maxsize=_KEPT_TREES)(parse_python)

DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
BUILTINS: Final = frozenset(dir(builtins))
_WIDE: Final = "\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000"
_ZERO: Final = "\u200b-\u200d\u2060\ufeff"
_ODD_BLANK: Final = re.compile(f"[{_WIDE}{_ZERO}]")
_STRING: Final = (
    r"""\"{3}(?:[^\\"]|\\.|"(?!""))*+(?:"{3}|\\?\Z)|'{3}(?:[^\\']|\\.|'(?!''))*+(?:'{3}|\\?\Z)"""
    r"""|"(?:[^\\"\n]|\\.)*+"?|'(?:[^\\'\n]|\\.)*+'?"""
)
_STRING_OR_ODD: Final = re.compile(rf"#[^\n]*+|[{_WIDE}{_ZERO}]|{_STRING}", re.DOTALL)
"""A comment or string, which stays as it is, or an odd blank outside of them."""
_PLAIN: Final = {
    mark: "" if re.match(f"[{_ZERO}]", mark) else " " for mark in map(chr, range(0x10000)) if _ODD_BLANK.match(mark)
}
_F_STRING: Final = re.compile(rf"#[^\n]*+|([fF][rR]?|[rR][fF])?(?:{_STRING})", re.DOTALL)
_MOST_F_STRING_STEPS: Final = 500_000_000  # an eighth of a second
_CLOSING: Final = frozenset(")]}")
_MOST_CUTS: Final = 8


def syntax_tree(text: str) -> ast.Module:
    """Parse Python in bounded time. Raises what ``ast.parse`` does, ``SyntaxError`` also for too many fields."""
    if sys.version_info < (3, 12):
        # CPython 3.11 holds the GIL and reads an f-string from its beginning for each of its fields.
        steps = 0
        for token in _F_STRING.finditer(text):
            steps += token[0].count("{") * len(token[0]) if token[1] else 0
            if steps > _MOST_F_STRING_STEPS:
                line = text.count("\n", 0, token.start()) + 1
                raise SyntaxError("too many fields in f-strings", ("", line, 0, None))
    for _ in range(_TRIES - 1):
        try:
            return ast.parse(text)
        except SystemError:
            # CPython 3.11 shares its nesting counter between threads, so concurrent parsing may raise this error.
            continue
    return ast.parse(text)


def statements(text: str) -> list[ast.stmt]:
    """Return the statements at the top level of a program; none if it does not parse. Do not change them."""
    tree = read_python(text)
    return [] if isinstance(tree, Failure) else tree.body


def is_program(text: str) -> bool:
    """Return True if a text is Python with effect; a one-word sentence would also parse."""
    return any(not isinstance(node, ast.Expr | ast.Pass) for node in statements(text))


def is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def defined_names(text: str) -> frozenset[str]:
    return frozenset(node.name for node in statements(text) if isinstance(node, DEFINITIONS))


@dataclass(frozen=True, slots=True)
class Names:
    """Names at the top level of a program."""

    bound: frozenset[str] = frozenset()
    """Names that it binds; functions without content do not count."""
    written: frozenset[str] = frozenset()
    """Those of them that it does not import."""
    free: frozenset[str] = frozenset()
    """Names that it needs and does not bind, or binds too late."""
    early: frozenset[str] = frozenset()
    """Those of them that it needs outside of functions and classes, when it is loaded."""


def names_of(text: str) -> Names:
    """Return the names of a program; none if it does not parse.

    Names that a function binds anywhere count as local in all of it, so ``free`` misses a few and adds none.
    """
    bound, written, later, early = set[str](), set[str](), set[str](), set[str]()
    for node in _flat(statements(text)):
        loads, stores, globals_ = _uses(node)
        if isinstance(node, DEFINITIONS):
            later |= loads - stores - {node.name}
            stores = globals_ if _is_stub(node) else {node.name} | globals_
        else:
            early |= loads - bound - BUILTINS
        bound |= stores
        if not isinstance(node, ast.Import | ast.ImportFrom):
            written |= stores
    free = {name for name in (later - bound - BUILTINS) | early if not name.startswith("__")}
    if "*" in bound:  # imported from anywhere
        free = early = set()
    return Names(frozenset(bound), frozenset(written), frozenset(free), frozenset(early))


def _flat(body: list[ast.stmt]) -> Iterator[ast.AST]:
    """Yield the statements at the top level in order, those of an ``if``, ``try`` or loop instead of the whole."""
    stack: list[ast.AST] = [*reversed(body)]
    while stack:
        node = stack.pop()
        if isinstance(node, (*DEFINITIONS, ast.expr)) or not (hasattr(node, "body") or isinstance(node, ast.Match)):
            yield node
        else:
            stack += reversed([*ast.iter_child_nodes(node)])
            if isinstance(node, ast.ExceptHandler) and node.name:
                stack.append(ast.Name(node.name, ast.Store()))


def top_level_names(tree: ast.Module) -> frozenset[str]:
    return frozenset().union(*map(bound_by, tree.body))


def bound_by(node: ast.stmt) -> frozenset[str]:
    names = set[str]()
    for part in _flat([node]):
        _, stores, globals_ = _uses(part)
        names |= {part.name} | globals_ if isinstance(part, DEFINITIONS) else stores
    return frozenset(names)


def _uses(node: ast.AST) -> tuple[set[str], set[str], set[str]]:
    """Return the names that a statement loads, those that it binds, and those that its functions bind as globals."""
    loads, stores, inner, declared = set[str](), set[str](), set[str](), set[str]()
    for part in ast.walk(node):
        match part:
            case ast.Name():
                (loads if isinstance(part.ctx, ast.Load) else stores).add(part.id)
            case ast.alias():
                stores.add(part.asname or part.name.partition(".")[0])
            case ast.arg():
                inner.add(part.arg)
            case ast.comprehension():
                inner |= {each.id for each in ast.walk(part.target) if isinstance(each, ast.Name)}
            case ast.Global():
                declared.update(part.names)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                stores.add(name)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                stores.add(part.name)
    if isinstance(node, DEFINITIONS):
        return loads, (stores | inner) - declared, stores & declared
    return loads - inner, stores - inner, set()


def _is_stub(node: ast.AST) -> bool:
    """Return True for a function without content: only ``...``, ``pass``, a text, or ``NotImplementedError``."""
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and all(
        isinstance(each, ast.Pass)
        or is_text(each)
        or (isinstance(each, ast.Raise) and "NotImplementedError" in ast.dump(each))
        for each in node.body
    )


def has_odd_blanks(text: str) -> bool:
    return _ODD_BLANK.search(text) is not None


def with_plain_blanks(text: str) -> str:
    """Replace wide blanks by plain ones and remove zero-width characters, outside of strings and comments."""
    return _STRING_OR_ODD.sub(lambda match: _PLAIN.get(match[0], match[0]), text)


def repaired(text: str) -> str:
    if not has_odd_blanks(text) or isinstance(read_python(text), ast.Module):
        return text
    return with_plain_blanks(text)


def complete_part(text: str, needed: frozenset[str]) -> str | None:
    """Return the leading top-level statements of a program that breaks off, without the last; None if it lacks one."""
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if line[:1] and not line[0].isspace() and line[0] not in _CLOSING]
    for end in starts[: -_MOST_CUTS - 1 : -1]:
        part = "\n".join(lines[:end]).rstrip() + "\n"
        if names := defined_names(part):
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
    try:
        return text.strip() if isinstance(tree, Failure) else ast.dump(tree)
    except RecursionError:
        return text.strip()
