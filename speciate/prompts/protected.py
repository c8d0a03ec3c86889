"""Keeps what stands outside of the EVOLVE-BLOCKs: a child's regions are put into the parent's own text."""

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
    """Return the child with every byte outside of the base's regions as the base has it.

    Accepted are: the whole program with its markers; the whole program with markers missing, when their places are
    certain; the marked regions alone; and, for a base with one region, what belongs inside of it. Trailing blanks do
    not count as a change. A base without regions protects nothing, and its child may not mark any: what a policy
    writes must not decide what its descendants may change.

    Args:
        base: The parent, or the seed program.
        child: What the policy wrote, or what became of the parent under its diff.

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
    """Return the SHA-256 of all that stands outside of the EVOLVE-BLOCKs of a program."""
    return digest_of(outside_of(text, blocks_or_none(text)))


def _marked(base: str, blocks: Sequence[Block], child: str) -> list[str] | Failure | None:
    """Read a child by its own markers; None when it has none."""
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
    """Find the protected pieces in a child without markers; None unless each has exactly one possible place."""
    pieces = _plain(outside)
    lines = [line.rstrip() for line in child.strip("\r\n").split("\n")]
    first, *between, last = pieces
    if lines[: len(first)] != first or (last and lines[-len(last) :] != last) or not all(between):
        return None
    position, end = len(first), len(lines) - len(last)
    contents: list[str] = []
    for piece in between:
        places = [i for i in range(position, end - len(piece) + 1) if lines[i : i + len(piece)] == piece]
        if len(places) != 1:
            return None
        contents.append(_text(lines[position : places[0]]))
        position = places[0] + len(piece)
    return [*contents, _text(lines[position:end])] if position <= end and any(pieces) else None


def _inside_alone(base: str, blocks: Sequence[Block], child: str) -> list[str] | None:
    """Take the child for the inside of the only region; None when it repeats what stands outside."""
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
