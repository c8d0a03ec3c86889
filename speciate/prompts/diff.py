"""Parse SEARCH/REPLACE blocks and apply them to a parent, with tolerance for inexact copies.

A block is::

    <<<<<<< SEARCH
    lines of the parent
    =======
    lines that replace them
    >>>>>>> REPLACE

SEARCH lines are matched exactly, then without trailing blanks, then without indentation, then without blank lines. The
replacement is indented by the rule that maps the indentation of SEARCH to that of the program: by more or less, with
tabs for blanks or blanks for tabs, or with other steps. The match must be unique; matches in editable regions come
before protected ones.
"""

import difflib
import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Final

from speciate.domain.candidate import Failure
from speciate.domain.files import heading_in
from speciate.prompts.evolve_blocks import blocks_or_none, place_in
from speciate.prompts.fences import SEPARATOR
from speciate.prompts.rejection import Reason, rejected

_SEARCH: Final = re.compile(r"\s*<{5,9}\s*SEARCH\b.*$")
_DIVIDER: Final = re.compile(r"\s*={5,9}\s*$")
_REPLACE: Final = re.compile(r"\s*>{5,9}\s*REPLACE\b.*$")
MARK: Final = re.compile(r"(?m)^[ \t]*+<{5,9}\s*SEARCH\b")
"""The first line of a SEARCH/REPLACE block."""
_FENCE_LINE: Final = re.compile(r"[ \t]*+(?:```|~~~)[\w+#.-]*+[ \t]*+$")
UNIFIED: Final = re.compile(r"(?m)^@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@|^--- \S.*\n\+\+\+ \S")
_ELIDED: Final = re.compile(r"[ \t]*+(?:(?:#|//|/\*|--)[ \t]*+)?(?:\.\.\.|…).*")
_MAX_EDITS: Final = 256
_MAX_PLACES: Final = 32
_COMPARED_LINES: Final = 400
_COMPARED_CHARS: Final = 120


@dataclass(slots=True)
class Edit:
    search: list[str] = field(default_factory=list)
    replace: list[str] = field(default_factory=list)
    section: int = 0
    """Number of separator lines before it, outside of blocks."""
    complete: bool = False
    file: str | None = None
    """File of the last heading above it, outside of blocks; None without a heading."""


Apply = Callable[[str, Edit, int], str | Failure]
"""``(text, edit, number)`` to the edited text or the failure."""


def tolerating_fences(apply: Apply) -> Apply:
    """Return a function that also applies edits with fences around their lines, or around a part of them.

    In a program that has lines like fences, those of the edit belong to it unless it does not apply with them.
    """

    def applied(text: str, edit: Edit, number: int) -> str | Failure:
        plain = replace(edit, search=_unfenced(edit.search), replace=_unfenced(edit.replace))
        if plain == edit:
            return apply(text, edit, number)
        whole = apply(text, edit, number) if any(map(_FENCE_LINE.match, text.split("\n"))) else None
        return whole if isinstance(whole, str) else apply(text, plain, number)

    return applied


def _unfenced(lines: list[str]) -> list[str]:
    full = [i for i, line in enumerate(lines) if line.strip()]
    if not full:
        return lines
    start, end = full[0], full[-1]
    opened, closed = bool(_FENCE_LINE.match(lines[start])), bool(_FENCE_LINE.match(lines[end]))
    return lines[start + opened : end + 1 - (closed and end > start - (not opened))]


def read_edits(text: str, *, several: bool = True) -> list[list[Edit]]:
    if "SEARCH" not in text:  # shortcut: most answers are whole programs
        return []
    edits = _scanned(text, several=several)
    return [list(group) for _, group in itertools.groupby(edits, key=lambda edit: edit.section)]


def _scanned(text: str, *, several: bool) -> list[Edit]:
    edits: list[Edit] = []
    into: list[str] | None = None
    section, file, divider = 0, None, ""
    for line in text.split("\n"):
        if _SEARCH.match(line):
            edits.append(Edit(section=section, file=file))
            into = edits[-1].search
        elif into is None:
            file = heading_in(line) or file
            if several and line.strip() == SEPARATOR:
                section, file = section + 1, None
        elif into is edits[-1].search and _DIVIDER.match(line):
            into, divider = edits[-1].replace, line
        elif line.strip() == "=======" != divider.strip() and into is edits[-1].replace:
            edits[-1].search += [divider, *into]  # the first one was a line of the program
            into[:], divider = [], line
        elif _REPLACE.match(line):
            edits[-1].complete = into is edits[-1].replace
            into = None
        else:
            into.append(line)
    return edits


def apply_edits(base: str, edits: Sequence[Edit], apply: Apply | None = None) -> str | Failure:
    if len(edits) > _MAX_EDITS:
        return rejected(Reason.DIFF_MALFORMED, f"{len(edits)} SEARCH/REPLACE blocks: at most {_MAX_EDITS} are read")
    text = base
    for number, edit in enumerate(edits, start=1):
        if not edit.complete:
            wrong = f"SEARCH/REPLACE block {number} has no ======= or no >>>>>>> REPLACE"
            return rejected(Reason.DIFF_MALFORMED, wrong)
        outcome = (apply or apply_edit)(text, edit, number)
        if isinstance(outcome, Failure):
            return outcome
        text = outcome
    return rejected(Reason.EMPTY_DIFF, "the diff leaves the program as it was") if text == base else text


def apply_edit(text: str, edit: Edit, number: int) -> str | Failure:
    """Return the text with one complete edit applied, or the failure, which calls it block ``number``."""
    if not any(line.strip() for line in edit.search):
        wrong = f"block {number}: SEARCH is empty: it must quote lines of the program"
        return rejected(Reason.DIFF_SEARCH_NOT_FOUND, wrong)
    lines = text.split("\n")
    unit = _unit(lines)
    alien = _strange(edit.replace, unit) and not _strange(lines, unit)
    matches = (_exact, _without_trailing_blanks, _reindented, _without_blank_lines)
    for match in matches[2:] if alien else matches:
        changes = match(lines, edit)
        places = _allowed(text, [change.start for change in changes], len(edit.search))
        if len(places) > 1:
            numbers = " and ".join(_line(text, place) for place in places[:_MAX_PLACES])
            wrong = f"block {number}: SEARCH fits at {numbers}: quote more lines around it"
            return rejected(Reason.DIFF_AMBIGUOUS, wrong)
        if places:
            change = next(change for change in changes if change.start == places[0])
            return "\n".join([*lines[: change.start], *change.lines, *lines[change.end :]])
    return rejected(Reason.DIFF_SEARCH_NOT_FOUND, _explain(text, _without_blank_ends(edit.search), number))


@dataclass(frozen=True, slots=True)
class _Change:
    """Lines that take the place of the program's lines ``start`` to ``end``, the end not included."""

    start: int
    end: int
    lines: list[str]


def _exact(lines: Sequence[str], edit: Edit) -> list[_Change]:
    return [_Change(place, place + len(edit.search), edit.replace) for place in _places(lines, edit.search, str)]


def _without_trailing_blanks(lines: Sequence[str], edit: Edit) -> list[_Change]:
    search, changed = _without_blank_ends(edit.search), _without_blank_ends(edit.replace)
    return [_Change(place, place + len(search), changed) for place in _places(lines, search, str.rstrip)]


def _reindented(lines: Sequence[str], edit: Edit) -> list[_Change]:
    search, changed = _without_blank_ends(edit.search), _without_blank_ends(edit.replace)
    unit = _unit(lines)
    spans = [(place, place + len(search)) for place in _places(lines, search, str.strip)]
    indented = [(start, end, _indented(lines[start:end], search, changed, unit)) for start, end in spans]
    return [_Change(start, end, text) for start, end, text in indented if text is not None]


def _without_blank_lines(lines: Sequence[str], edit: Edit) -> list[_Change]:
    numbers = [i for i, line in enumerate(lines) if line.strip()]
    full = replace(edit, search=[line for line in edit.search if line.strip()])
    return [
        _Change(numbers[change.start], numbers[change.end - 1] + 1, change.lines)
        for change in _reindented([lines[i] for i in numbers], full)
    ]


def _places(lines: Sequence[str], search: Sequence[str], normal: Callable[[str], str]) -> list[int]:
    """Return the first places where the lines match; ``str.find`` keeps hostile repetitions linear."""
    text = "\n".join(["", *map(normal, lines), ""])
    needle = "\n".join(["", *map(normal, search), ""])
    places: list[int] = []
    counted, at, line = 0, text.find(needle), 0
    while at >= 0 and len(places) < _MAX_PLACES:
        line += text.count("\n", counted, at)
        counted = at
        places.append(line)
        at = text.find(needle, at + 1)
    return places


def _allowed(text: str, places: list[int], length: int) -> list[int]:
    """Prefer places within editable regions; protected ones are refused later, by name."""
    if len(places) < 2:
        return places
    blocks = blocks_or_none(text)
    return [p for p in places if any(b.start <= p and p + length < b.end for b in blocks)] or places


def _indented(own: Sequence[str], search: Sequence[str], changed: Sequence[str], unit: str) -> list[str] | None:
    """Return the replacement, indented like the program; None unless one rule maps SEARCH to the program's lines.

    Models often leave out the indentation of the first line only, or of SEARCH and not of REPLACE.
    """
    pairs = [(_margin(have), _margin(line)) for have, line in zip(own, search, strict=True) if line.strip()]
    here, there = pairs[0]
    rule = _rule(pairs, changed, unit)
    stripped = rule is None and not there and len(pairs) > 1
    if stripped:
        rule = _rule(pairs[1:], changed, unit)
    if rule is None:
        return None
    first = _margin(changed[0]) if changed else ""
    if here and first == here and not there and not stripped:
        return [*changed]
    lines = [rule(_margin(line)) + line.lstrip() if line.strip() else "" for line in changed]
    return [here + changed[0], *lines[1:]] if stripped and changed and not first else lines


def _rule(pairs: Sequence[tuple[str, str]], changed: Sequence[str], unit: str) -> Callable[[str], str] | None:
    """Return the function of an indentation of the edit to that of the program, if one fits all pairs."""
    shift = _shift(pairs)
    if shift is not None and not _strange(changed, unit):
        drop, add = shift
        return lambda margin: add + margin.removeprefix(drop)
    widths = {len(there): len(here) for here, there in pairs}
    if len(widths) != len(set(pairs)) or any(" " in text and "\t" in text for pair in pairs for text in pair):
        return None
    (low, low_own), (high, high_own) = min(widths.items()), max(widths.items())
    if high > low:
        slope = Fraction(high_own - low_own, high - low)
    elif unit == "\t":
        slope = Fraction(1, math.gcd(low, *(len(_margin(line)) for line in changed)) or 1)
    else:
        slope = Fraction(len(unit) if _strange(changed, unit) else 1)
    if slope <= 0 or any(low_own + slope * (width - low) != own for width, own in widths.items()):
        return None
    blank = next((here[0] for here, _ in pairs if here), unit[0])
    return lambda margin: blank * max(0, int(low_own + slope * (len(margin) - low)))


def _strange(lines: Sequence[str], unit: str) -> bool:
    """Return True if lines are indented with tabs where the program has blanks, or the other way round."""
    return any(line[:1] in " \t" and line[:1] != unit[0] for line in lines if line.strip())


def _unit(lines: Sequence[str]) -> str:
    """Return one step of the program's indentation: a tab, or the smallest number of blanks."""
    margins = [margin for line in lines if (margin := _margin(line)) and line.strip()]
    if 2 * sum(margin[0] == "\t" for margin in margins) > len(margins):
        return "\t"
    return " " * min((len(margin) for margin in margins if margin[0] == " "), default=4)


def _shift(pairs: Sequence[tuple[str, str]]) -> tuple[str, str] | None:
    """Return ``(drop, add)`` that maps the indentation of SEARCH to the program's, if one pair fits all lines."""
    rules: set[tuple[str, str]] = set()
    for here, there in pairs:
        if here.endswith(there):
            rules.add(("", here[: len(here) - len(there)]))
        elif there.endswith(here):
            rules.add((there[: len(there) - len(here)], ""))
        else:
            return None
    return rules.pop() if len(rules) == 1 else None


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _without_blank_ends(lines: Sequence[str]) -> list[str]:
    full = [i for i, line in enumerate(lines) if line.strip()]
    return list(lines[full[0] : full[-1] + 1]) if full else []


def _line(text: str, i: int) -> str:
    """Return the name of a line by its position, from 0, as a prompt shows it."""
    blocks = blocks_or_none(text)
    return (place_in(blocks, i + 1, "the block") or "a line of the fixed text") if blocks else f"line {i + 1}"


def _explain(text: str, search: Sequence[str], number: int) -> str:
    """Return why SEARCH is not in the program: the first line that differs, or the lines closest to its first one."""
    lines = text.split("\n")
    own = [line.strip() for line in lines]
    if any(_ELIDED.fullmatch(line) for line in {line.strip() for line in search}.difference(own)):
        return f"block {number}: SEARCH leaves lines out with `...`: quote every line, or write several blocks"
    starts = [i for i, line in enumerate(own) if line == search[0].strip()][:_MAX_PLACES]
    if not starts:
        return _closest(text, own, search[0].strip(), number)
    equal, start = max((_equal(own[start : start + len(search)], search), -start) for start in starts)
    start = -start
    head = f"block {number}: SEARCH is not in the program."
    if equal < len(search):
        line = own[start + equal][:_COMPARED_CHARS] if start + equal < len(own) else "the end of the program"
        differs = search[equal].strip()[:_COMPARED_CHARS]
        return (
            f"{head} It fits from {_line(text, start)} on, but its line {equal + 1} is: {differs}"
            f"\nThe true line is: {line}"
        )
    at = next((i for i, line in enumerate(search) if line.strip() and _margin(line) != _margin(lines[start + i])), 0)
    return (
        f"{head} Only the indentation differs, first in line {at + 1} of SEARCH: {_margin(search[at])!r} where"
        f" {_line(text, start + at)} has {_margin(lines[start + at])!r}"
    )


def _equal(own: Sequence[str], search: Sequence[str]) -> int:
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1].strip(), zip(own, search, strict=False)))


def _closest(text: str, own: Sequence[str], searched: str, number: int) -> str:
    searched = searched[:_COMPARED_CHARS]
    stripped = [line[:_COMPARED_CHARS] for line in own[:_COMPARED_LINES]]
    parts = [i for i, line in enumerate(stripped) if len(searched) > 2 and searched in line]
    if parts:
        whole = f"quote the whole line: {stripped[parts[0]]}"
        return f"block {number}: SEARCH begins with a part of {_line(text, parts[0])}: {whole}"
    close = difflib.get_close_matches(searched, [line for line in stripped if line], n=3, cutoff=0.5)
    if not close:
        return f"block {number}: no line of the program is like the first line of SEARCH: {searched}"
    quoted = "\n".join(f"  {_line(text, stripped.index(line))}: {line}" for line in dict.fromkeys(close))
    head = f"block {number}: SEARCH is not in the program. Its first line is: {searched}"
    return f"{head}\nThe closest lines are:\n{quoted}"
