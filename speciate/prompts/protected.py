"""Restore text outside of EVOLVE-BLOCKs: a child's regions are inserted into the parent's text."""

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from speciate.domain.candidate import Failure
from speciate.domain.values import digest_of
from speciate.prompts.evolve_blocks import (
    Block,
    blocks_or_none,
    contents_of,
    lines_of,
    outside_of,
    with_contents,
    without_markers,
)
from speciate.prompts.python_source import BUILTINS, bound_by, defined_names, is_text, names_of, read_python
from speciate.prompts.rejection import Reason, rejected

_NAMED_LINES: Final = 5
_MOVED: Final = "lines were added, moved or repeated, or the markers are missing"
_WORD: Final = re.compile(r"\w+")
_WHOLE: Final = re.compile(r"from __future__ |if __name__ |print\(")
"""Beginnings of statements that only whole programs and examples have."""
_INCLUDE: Final = re.compile(r"#\s*include\b|using\b|use\b.*;|library\(")
"""Lines of languages other than Python that may stand within a region as well as before it."""


class Kept(NamedTuple):
    """A child with protected text from its parent."""

    text: str
    difference: str = ""
    """What the restored text replaced or what moved, for people; empty if nothing."""


def keep_protected(base: str, child: str, *, alone: bool = True) -> Kept | Failure:
    """Return the child with every byte outside of the base's regions as in the base.

    Accepted forms: the whole program with markers; the whole program without markers, if the place of everything in it
    is certain; the marked regions alone; and, for a base with one region, only its content. Changes of protected text
    are undone, and new imports and definitions that a region uses move into it. A base without regions protects
    nothing, and its child may not add markers, because a policy must not decide what its descendants may change.

    The failure is ``protected_region_changed``: the place of some text is not certain, or only protected text was
    changed, unless the child is not ``alone``, but one of several files.
    """
    blocks = blocks_or_none(base)
    if not blocks:
        return Kept(without_markers(child))
    outside, equal = outside_of(base, blocks), True
    contents: list[str] | None
    if own := blocks_or_none(child):
        if len(own) != len(blocks):
            problem = f"{len(own)} EVOLVE-BLOCKs where the parent has {len(blocks)}"
            return rejected(Reason.PROTECTED_REGION_CHANGED, problem)
        pieces, contents = outside_of(child, own), contents_of(child, own)
        equal = not any(piece.strip() for piece in pieces) or _plain(pieces) == _plain(outside)
        contents = contents if equal else _with_added(base, blocks, child, own)
    else:
        plain = without_markers(child)
        contents = _unmarked(outside, plain)
        if contents is None and _is_content(base, plain):
            contents = _inside_alone(base, blocks, plain)
        if contents is None and (contents := _assigned(base, blocks, plain)) is not None:
            equal = defined_names(plain).isdisjoint(defined_names("".join(outside)))
        contents = contents or _inside_alone(base, blocks, plain)
    difference = _difference(base, blocks, child)
    if contents is None:
        needed = names_of("".join(outside)).free & defined_names("".join(contents_of(base, blocks)))
        lacks = ", ".join(sorted(needed - defined_names(child)))
        wrong = f"{lacks and f'the block must define {lacks}; '}outside of the EVOLVE-BLOCKs: {difference or _MOVED}"
        return rejected(Reason.PROTECTED_REGION_CHANGED, wrong)
    restored = with_contents(base, blocks, contents)
    if len(blocks_or_none(restored)) != len(blocks):
        return rejected(Reason.PROTECTED_REGION_CHANGED, "an EVOLVE-BLOCK marker shares a line with code")
    if alone and not equal and restored == base:
        return rejected(Reason.PROTECTED_REGION_CHANGED, f"outside of the EVOLVE-BLOCKs: {difference or _MOVED}")
    return Kept(restored, "" if equal else _difference(base, blocks, child, restored))


def protected_digest(text: str) -> str:
    return digest_of(outside_of(text, blocks_or_none(text)))


def python_change(seed: str, program: str) -> str:
    """Return how the regions of a program change the meaning of the protected Python around them; empty if unknown.

    Its statements must remain statements, and the regions bind no name that they bind, and no built-in that they use,
    unless those of the seed do. What happens when a program runs is not seen.
    """
    old, new = read_python(seed), read_python(program)
    if isinstance(old, Failure) or isinstance(new, Failure):
        return ""
    (fixed, lines, own), (_, new_lines, others) = _apart(seed, old), _apart(program, new)
    if lines != new_lines:
        return "an EVOLVE-BLOCK turns protected statements into something else"
    bound = frozenset[str]().union(*(bound_by(node) for node in fixed if not isinstance(node, ast.If)))
    words = {word.id for node in fixed for word in ast.walk(node) if isinstance(word, ast.Name)}
    kept = (bound | (words & BUILTINS)) - frozenset[str]().union(*map(bound_by, own))
    for node in others:
        again = {name for name, *_ in _modules([node]) & _modules(fixed)}
        if names := (bound_by(node) & kept) - again:
            return f"an EVOLVE-BLOCK binds {min(names)}, which the protected text binds or uses"
    return ""


def _apart(text: str, tree: ast.Module) -> tuple[list[ast.stmt], list[str], list[ast.stmt]]:
    """Return the statements wholly outside of the regions, their lines, and the other statements."""
    blocks, lines = blocks_or_none(text), lines_of(text)
    spans = [(node, _first_line(node), node.end_lineno or node.lineno) for node in tree.body]
    others = [node for node, first, last in spans if any(first < b.end and b.start < last for b in blocks)]
    fixed = [(node, "".join(lines[first - 1 : last])) for node, first, last in spans if node not in others]
    return [node for node, _ in fixed], [source for _, source in fixed], others


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(each.lineno for each in decorators)])


def _modules(nodes: Sequence[ast.stmt]) -> set[tuple[str, ...]]:
    """Return imported names with their packages: that of ``import a.b`` is the one of ``import a``."""
    return {(name, key[0].partition(".")[0], *key[2:]) for node in nodes for name, key, _ in _imports(node)}


def _with_added(base: str, blocks: Sequence[Block], child: str, own: Sequence[Block]) -> list[str] | None:
    """Return the contents of a child's regions with what they use of the code that it adds outside of them."""
    contents = contents_of(child, own)
    if isinstance(read_python(base), Failure):
        added = _added_lines(base, blocks, outside_of(child, own))
    else:
        around = with_contents(child, own, [f"{_margin(child, block)}pass\n" for block in own])
        added = _own_code(base, blocks, around, frozenset(), "".join(contents))
    if not added:
        return None if added is None else contents
    # They stand in front of the first region at the left margin, or of the only region.
    margins = [_margin(base, block) for block in blocks]
    place = margins.index("") if "" in margins else 0
    front = textwrap.indent("\n".join(added) + "\n", margins[place])
    moved = [*contents[:place], front + contents[place], *contents[place + 1 :]]
    return None if margins[place] and len(blocks) > 1 else moved


def _own_code(base: str, blocks: Sequence[Block], text: str, own: frozenset[str], uses: str) -> list[str] | None:
    """Return imports and statements of a Python text that the base's protected text lacks.

    These are statements that bind an ``own`` name, and those whose names the text ``uses`` or another one of them does.
    None if the place of a statement is not certain.
    """
    old, new = read_python(base), read_python(text)
    if isinstance(old, Failure) or isinstance(new, Failure):
        return None
    outside = [node for node in old.body if not any(b.start < node.lineno < b.end for b in blocks)]
    protected = frozenset[str]().union(*map(bound_by, outside)) - own
    lines, end, parts, used = lines_of(text), 0, dict[int, tuple[frozenset[str], str]](), set(_WORD.findall(uses))
    for number, node in enumerate(new.body):
        names = bound_by(node)
        if _first_line(node) <= end:
            return None  # two statements share a line
        if not isinstance(node, ast.Import | ast.ImportFrom) and not is_text(node) and not names <= protected:
            if names & protected:
                return None
            parts[number] = names, without_markers("".join(lines[end : node.end_lineno]))
        end = node.end_lineno or node.lineno
    taken = set[int]()
    while fresh := {number for number, (names, _) in parts.items() if names & (own | used)} - taken:
        taken |= fresh
        used.update(word for number in fresh for word in _WORD.findall(parts[number][1]))
    imports = _new_imports(new.body, outside, used)
    statements = "".join(parts[number][1] for number in sorted(taken)).strip("\n")
    return None if imports is None else [*imports, *filter(None, [statements])]


def _margin(text: str, block: Block) -> str:
    marker = lines_of(text)[block.start - 1]
    return marker[: len(marker) - len(marker.lstrip())]


def _new_imports(nodes: Sequence[ast.stmt], old: Sequence[ast.stmt], used: set[str]) -> list[str] | None:
    """Return imports that the old statements lack and that are used; None if one rebinds a protected name."""
    keys = {key for node in old for _, key, _ in _imports(node)}
    protected = frozenset[str]().union(*map(bound_by, old))
    lines: list[str] = []
    for name, key, line in (each for node in nodes for each in _imports(node)):
        if key not in keys and key[0] != "__future__":
            if name in protected or name == "*":
                return None
            if name in used:
                lines.append(line)
    return lines


def _imports(node: ast.stmt) -> Iterator[tuple[str, tuple[str, ...], str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            yield name, (alias.name, name), ast.unparse(ast.Import([alias]))
    elif isinstance(node, ast.ImportFrom):
        for alias in node.names:
            line = ast.unparse(ast.ImportFrom(node.module, [alias], node.level))
            yield alias.asname or alias.name, (node.module or "", str(node.level), alias.name, alias.asname or ""), line


def _added_lines(base: str, blocks: Sequence[Block], pieces: Sequence[str]) -> list[str] | None:
    """Return the inclusions that a child adds outside of its regions; None if other code differs there."""
    comment = lines_of(base)[blocks[0].start - 1].strip().partition("EVOLVE-BLOCK")[0].strip()
    both = _lines(outside_of(base, blocks), []), _lines(pieces, [])
    old, new = ([line for line in each if not line.startswith(comment)] for each in both)
    before = set(old)
    added = [line for line in new if line not in before and _INCLUDE.match(line)]
    return added if before.issuperset(line for line in new if not _INCLUDE.match(line)) else None


def _unmarked(outside: Sequence[str], child: str) -> list[str] | None:
    """Locate the protected pieces in a child without markers; None unless each has exactly one possible place."""
    pieces = _plain(outside)
    lines = _plain([child])[0]
    first, *between, last = pieces
    if lines[: len(first)] != first or (last and lines[-len(last) :] != last) or not all(between):
        return None
    position, end = len(first), len(lines) - len(last)
    contents: list[str] = []
    for piece in between:
        place = _only_place(lines, piece, position, end)
        if place is None:
            return None
        contents.append(_text(lines[position:place]))
        position = place + len(piece)
    return [*contents, _text(lines[position:end])] if position <= end and any(pieces) else None


def _only_place(lines: Sequence[str], piece: Sequence[str], start: int, end: int) -> int | None:
    text, needle = "\n".join(["", *lines[start:end], ""]), "\n".join(["", *piece, ""])
    place = text.find(needle)
    unique = place >= 0 and text.find(needle, place + 1) < 0
    return start + text.count("\n", 0, place) if unique else None


def _assigned(base: str, blocks: Sequence[Block], child: str) -> list[str] | None:
    """Return the content of the only region from a whole Python program without markers, by the names of its parts.

    None if the place of a statement is not certain, or if the region loses all functions and classes.
    """
    if len(blocks) != 1 or _margin(base, blocks[0]):
        return None
    (inside,) = contents_of(base, blocks)
    code = _own_code(base, blocks, child, names_of(inside).bound, child)
    text = "\n".join(code or ()) + "\n"
    defined = defined_names(inside)
    return None if not code or (defined and defined.isdisjoint(defined_names(text))) else [text]


def _is_content(base: str, child: str) -> bool:
    """Return True if a Python text binds nothing of the protected text but its imports, and has no example."""
    old, new = read_python(base), read_python(child)
    if isinstance(old, Failure) or isinstance(new, Failure):
        return False
    protected, own = (
        frozenset[str]().union(*(bound_by(node) for node in nodes if not isinstance(node, ast.Import | ast.ImportFrom)))
        for nodes in (_apart(base, old)[0], new.body)
    )
    return own.isdisjoint(protected) and not any(_WHOLE.match(ast.unparse(node)) for node in new.body)


def _inside_alone(base: str, blocks: Sequence[Block], child: str) -> list[str] | None:
    """Take the child as the content of the only region; None if it repeats definitions from outside."""
    if len(blocks) != 1 or defined_names(child) & defined_names("".join(outside_of(base, blocks))):
        return None
    margin = _margin(base, blocks[0])
    if margin and not child.lstrip("\r\n").startswith(margin):
        child = textwrap.indent(textwrap.dedent(child), margin)
    return [child]


def _plain(pieces: Sequence[str]) -> list[list[str]]:
    """Return the lines of each piece without trailing blanks, and without blank lines at its ends."""
    stripped = ("\n".join(line.rstrip() for line in piece.split("\n")).strip("\n") for piece in pieces)
    return [piece.split("\n") if piece else [] for piece in stripped]


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines).strip("\n") + "\n"


def _difference(base: str, blocks: Sequence[Block], child: str, restored: str = "") -> str:
    """Return the code outside of the regions that a child changes; empty if it only omits or changes comments.

    With the ``restored`` text that is what moved into its regions and what was undone.
    """
    comment, own = lines_of(base)[blocks[0].start - 1].partition("EVOLVE-BLOCK")[0].strip(), blocks_or_none(child)
    moved = _lines([restored], [base, *contents_of(child, own)]) if own else []
    added = _lines(outside_of(child, own), [base, restored]) if own or restored else []
    differing = _lines(outside_of(base, blocks), [child]), added
    texts = _documentation(base) | _documentation(child)
    begins = tuple(filter(None, [comment, *(["import ", "from "] if moved else [])]))
    missing, changed = ([t for t in each if t not in texts and not t.startswith(begins)] for each in differing)
    named = {"moved into the block": moved, "undone": changed or (missing if own else [])}
    named = named if restored else {"missing or changed": missing, "added": changed}
    parts = [f"{what}: {' ⏎ '.join(code[:_NAMED_LINES])}" for what, code in named.items() if code]
    return "; ".join(parts) or ("" if any(differing) else _MOVED)


def _lines(texts: Sequence[str], without: Sequence[str]) -> list[str]:
    known = {line.strip() for text in without for line in text.splitlines()} | {""}
    return [line for text in texts for line in map(str.strip, text.splitlines()) if line not in known]


def _documentation(text: str) -> set[str]:
    """Return the lines of the docstrings of a Python text."""
    tree, lines = read_python(text), text.splitlines()
    nodes = ast.walk(tree) if isinstance(tree, ast.Module) else ()
    return {
        line.strip()
        for node in nodes
        if isinstance(node, ast.stmt) and is_text(node)
        for line in lines[node.lineno - 1 : node.end_lineno]
    }
