"""Unified diffs of untrusted programs, in bounded time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Final

MAX_LINES: Final = 2000
"""Differing lines per side above which the diff is one block instead of a minimal diff."""

_CONTEXT: Final = 3

Opcode = tuple[str, int, int, int, int]
"""An opcode of ``SequenceMatcher``: verb, lines [i1, i2) before, lines [j1, j2) after."""


@dataclass(frozen=True, slots=True)
class Diff:
    text: str
    """Empty if nothing changed."""
    minimal: bool
    """False if the diff replaces one block instead of comparing line by line."""


def unified_diff(old: str, new: str, *, before: str, after: str) -> Diff:
    """Return the unified diff of two texts with three lines of context."""
    # ``splitlines`` would also split at characters that may occur inside a Python string.
    a, b = (text.split("\n") if text else [] for text in (old, new))
    if a == b:
        return Diff("", minimal=True)
    head = _shared(a, b)
    tail = _shared(a[head:][::-1], b[head:][::-1])
    minimal = max(len(a), len(b)) - head - tail <= MAX_LINES
    lead, trail = min(head, _CONTEXT), min(tail, _CONTEXT)
    # Compare only the differing part with its context, because matching is slower than linear.
    skipped = head - lead
    a, b = (lines[skipped : len(lines) - tail + trail] for lines in (a, b))
    groups: Iterable[Sequence[Opcode]]
    if minimal:
        groups = SequenceMatcher(None, a, b).get_grouped_opcodes(_CONTEXT)
    else:
        i, j = len(a) - trail, len(b) - trail
        groups = [(("equal", 0, lead, 0, lead), ("replace", lead, i, lead, j), ("equal", i, len(a), j, len(b)))]
    lines = [f"--- {before}", f"+++ {after}"]
    for group in groups:
        lines.extend(_hunk(a, b, group, skipped))
    return Diff("\n".join(lines), minimal)


def _shared(a: Sequence[str], b: Sequence[str]) -> int:
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _hunk(a: Sequence[str], b: Sequence[str], group: Sequence[Opcode], skipped: int) -> Iterable[str]:
    first, last = group[0], group[-1]
    yield f"@@ -{_span(first[1], last[2], skipped)} +{_span(first[3], last[4], skipped)} @@"
    for verb, i1, i2, j1, j2 in group:
        if verb == "equal":
            yield from (f" {line}" for line in a[i1:i2])
        else:
            yield from (f"-{line}" for line in a[i1:i2])
            yield from (f"+{line}" for line in b[j1:j2])


def _span(start: int, stop: int, skipped: int) -> str:
    # An empty span has the number of the line before it.
    length = stop - start
    return f"{start + skipped + (length > 0)},{length}"
