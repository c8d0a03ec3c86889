"""Restore text outside of EVOLVE-BLOCKs: a child's regions are inserted into the parent's text."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

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
from speciate.prompts.python_source import defined_names
from speciate.prompts.rejection import Reason, rejected


def keep_protected(base: str, child: str) -> str | Failure:
    """Return the child with every byte outside of the base's regions as in the base.

    Accepted forms: the whole program with markers; the whole program without markers, if their places are certain; the
    marked regions alone; and, for a base with one region, only its content. Trailing blanks do not count as a change. A
    base without regions protects nothing, and its child may not add markers, because a policy must not decide what its
    descendants may change.

    Args:
        base: The parent, or the seed program.
        child: The policy's program, or the parent with its diff applied.

    Returns:
        The child, or the failure ``protected_region_changed`` with the first line that differs.
    """
    blocks = blocks_or_none(base)
    if not blocks:
        return without_markers(child)
    contents = _marked(base, blocks, child)
    if contents is None:
        plain = without_markers(child)
        contents = _unmarked(outside_of(base, blocks), plain) or _inside_alone(base, blocks, plain)
    if contents is None:
        return rejected(Reason.PROTECTED_REGION_CHANGED, _difference(base, blocks, child))
    if isinstance(contents, Failure):
        return contents
    kept = with_contents(base, blocks, contents)
    if len(blocks_or_none(kept)) != len(blocks):
        return rejected(Reason.PROTECTED_REGION_CHANGED, "an EVOLVE-BLOCK marker shares a line with code")
    return kept


def protected_digest(text: str) -> str:
    """Return the SHA-256 of the text outside of a program's EVOLVE-BLOCKs."""
    return digest_of(outside_of(text, blocks_or_none(text)))


def _marked(base: str, blocks: Sequence[Block], child: str) -> list[str] | Failure | None:
    """Return the contents of a child's own regions; None without markers."""
    own = blocks_or_none(child)
    if len(own) != len(blocks):
        return (
            None
            if not own
            else rejected(
                Reason.PROTECTED_REGION_CHANGED, f"{len(own)} EVOLVE-BLOCKs where the parent has {len(blocks)}"
            )
        )
    kept = outside_of(child, own)
    if any(piece.strip() for piece in kept) and _plain(kept) != _plain(outside_of(base, blocks)):
        return rejected(Reason.PROTECTED_REGION_CHANGED, _difference(base, blocks, child))
    return contents_of(child, own)


def _unmarked(outside: Sequence[str], child: str) -> list[str] | None:
    """Locate the protected pieces in a child without markers; None unless each has exactly one possible place."""
    pieces = _plain(outside)
    lines = [line.rstrip() for line in child.strip("\r\n").split("\n")]
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
    places = [i for i in range(start, end - len(piece) + 1) if lines[i : i + len(piece)] == piece]
    return places[0] if len(places) == 1 else None


def _inside_alone(base: str, blocks: Sequence[Block], child: str) -> list[str] | None:
    """Take the child as the content of the only region; None if it repeats definitions from outside."""
    if len(blocks) != 1:
        return None
    outside = "".join(outside_of(base, blocks))
    if defined_names(child) & defined_names(outside):
        return None
    marker = lines_of(base)[blocks[0].start - 1]
    margin = marker[: len(marker) - len(marker.lstrip())]
    if margin and not child.lstrip("\r\n").startswith(margin):
        child = textwrap.indent(textwrap.dedent(child), margin)
    return [child]


def _plain(pieces: Sequence[str]) -> list[list[str]]:
    return [[line.rstrip() for line in piece.strip("\r\n").split("\n")] if piece.strip() else [] for piece in pieces]


def _text(lines: Sequence[str]) -> str:
    return "\n".join(lines).strip("\n") + "\n"


def _difference(base: str, blocks: Sequence[Block], child: str) -> str:
    have = {line.strip() for line in child.splitlines()}
    for piece in outside_of(base, blocks):
        for line in piece.splitlines():
            if line.strip() and line.strip() not in have:
                return f"this line outside of the EVOLVE-BLOCKs is missing or changed: {line.strip()}"
    return "outside of the EVOLVE-BLOCKs lines were added, moved or repeated, or the markers are missing"
