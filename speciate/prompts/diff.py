"""Parse SEARCH/REPLACE blocks and apply them to a parent, with tolerance for inexact copies.

A block is::

    <<<<<<< SEARCH
    lines of the parent
    =======
    lines that replace them
    >>>>>>> REPLACE

SEARCH lines are matched exactly, then without trailing blanks, then without indentation (the replacement is shifted
likewise). The match must be unique; matches in editable regions come before protected ones.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from speciate.domain.candidate import Failure
from speciate.domain.files import heading_in
from speciate.prompts.evolve_blocks import blocks_or_none
from speciate.prompts.fences import SEPARATOR
from speciate.prompts.rejection import Reason, rejected

_SEARCH: Final = re.compile(r"\s*<{5,9}\s*SEARCH\b.*$")
_DIVIDER: Final = re.compile(r"\s*={5,9}\s*$")
_REPLACE: Final = re.compile(r"\s*>{5,9}\s*REPLACE\b.*$")
_MAX_EDITS: Final = 256
_MAX_PLACES: Final = 32
_COMPARED_LINES: Final = 400
_COMPARED_CHARS: Final = 120


DIFF_GRAMMAR: Final = r"""root ::= line* block (line* block)* line*
block ::= "<<<<<<< SEARCH\n" line* "=======\n" line* ">>>>>>> REPLACE\n"
line ::= [ \t]* (plain | less | equal | more)? "\n"
plain ::= [^ \t\n<=>] [^\n]*
less ::= "<" "<"? "<"? "<"? ([^<\n] [^\n]*)?
equal ::= "=" "="? "="? "="? ([^=\n] [^\n]*)?
more ::= ">" ">"? ">"? ">"? ([^>\n] [^\n]*)?
"""
"""Grammar of an answer in SEARCH/REPLACE blocks, for constrained decoding, in the EBNF of xgrammar and llguidance.

An open block can only be closed: no line in it looks like a marker (five or more of its characters). Prose, file
headings and separators may stand between blocks.
"""


@dataclass(slots=True)
class Edit:
    """One SEARCH/REPLACE block.

    Attributes:
        search: Lines to find.
        replace: Lines that replace them.
        section: Number of separator lines before it, outside of blocks.
        complete: True if its end was found.
        file: File of the last heading above it, outside of blocks; None without a heading.
    """

    search: list[str] = field(default_factory=list)
    replace: list[str] = field(default_factory=list)
    section: int = 0
    complete: bool = False
    file: str | None = None


Apply = Callable[[str, Edit, int], str | Failure]
"""``(text, edit, number)`` to the edited text or the failure."""


def read_edits(text: str, *, several: bool = True) -> list[list[Edit]]:
    """Return the edits of a completion, grouped by answer.

    Args:
        text: The completion.
        several: True if separator lines divide answers; otherwise all edits belong to one answer.
    """
    if "SEARCH" not in text:  # shortcut: most answers are whole programs
        return []
    edits = _scanned(text, several=several)
    return [list(group) for _, group in itertools.groupby(edits, key=lambda edit: edit.section)]


def _scanned(text: str, *, several: bool) -> list[Edit]:
    edits: list[Edit] = []
    into: list[str] | None = None
    section, file = 0, None
    for line in text.split("\n"):
        if _SEARCH.match(line):
            edits.append(Edit(section=section, file=file))
            into = edits[-1].search
        elif into is None:
            file = heading_in(line) or file
            if several and line.strip() == SEPARATOR:
                section, file = section + 1, None
        elif into is edits[-1].search and _DIVIDER.match(line):
            into = edits[-1].replace
        elif _REPLACE.match(line):
            edits[-1].complete = into is edits[-1].replace
            into = None
        else:
            into.append(line)
    return edits


def apply_edits(base: str, edits: Sequence[Edit], apply: Apply | None = None) -> str | Failure:
    """Return the base with the edits applied in order, or the failure.

    Args:
        base: The program.
        edits: Edits in the order written.
        apply: Applies one edit; ``apply_edit`` by default.
    """
    if len(edits) > _MAX_EDITS:
        return rejected(Reason.DIFF_MALFORMED, f"{len(edits)} SEARCH/REPLACE blocks: at most {_MAX_EDITS} are read")
    text = base
    for number, edit in enumerate(edits, start=1):
        if not edit.complete:
            return rejected(
                Reason.DIFF_MALFORMED, f"SEARCH/REPLACE block {number} has no ======= or no >>>>>>> REPLACE"
            )
        outcome = (apply or apply_edit)(text, edit, number)
        if isinstance(outcome, Failure):
            return outcome
        text = outcome
    return rejected(Reason.EMPTY_DIFF, "the diff leaves the program as it was") if text == base else text


def apply_edit(text: str, edit: Edit, number: int) -> str | Failure:
    """Return the text with one complete edit applied, or the failure, which calls it block ``number``."""
    if not any(line.strip() for line in edit.search):
        return rejected(
            Reason.DIFF_SEARCH_NOT_FOUND, f"block {number}: SEARCH is empty: it must quote lines of the program"
        )
    lines = text.split("\n")
    for normal in (str, str.rstrip, str.strip):
        trimmed = list if normal is str else _without_blank_ends
        search = trimmed(edit.search)
        places = _allowed(text, _matches(lines, search, normal), len(search))
        if len(places) > 1:
            found = ", ".join(str(place + 1) for place in places[:_MAX_PLACES])
            return rejected(
                Reason.DIFF_AMBIGUOUS, f"block {number}: SEARCH fits at lines {found}: quote more lines around it"
            )
        if places:
            start, end = places[0], places[0] + len(search)
            replace = trimmed(edit.replace)
            if normal is str.strip:
                replace = _shifted(replace, _shift(lines[start:end], search))
            return "\n".join([*lines[:start], *replace, *lines[end:]])
    return rejected(Reason.DIFF_SEARCH_NOT_FOUND, _closest(lines, edit.search, number))


def _matches(lines: Sequence[str], search: Sequence[str], normal: Callable[[str], str]) -> list[int]:
    """Return the places where the normalised lines match, with a uniform shift if indentation is ignored."""
    places = _places(lines, search, normal)
    if normal is not str.strip:
        return places
    return [place for place in places if _shift(lines[place : place + len(search)], search) is not None]


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
    inside = [p for p in places if any(b.start <= p and p + length < b.end for b in blocks)]
    return inside or places


def _shift(found: Sequence[str], search: Sequence[str]) -> tuple[str, str] | None:
    """Return ``(drop, add)`` that maps the indentation of SEARCH to the program's, if one pair fits all lines."""
    rules: set[tuple[str, str]] = set()
    for have, want in zip(found, search, strict=True):
        if want.strip():
            here, there = _margin(have), _margin(want)
            if here.endswith(there):
                rules.add(("", here[: len(here) - len(there)]))
            elif there.endswith(here):
                rules.add((there[: len(there) - len(here)], ""))
            else:
                return None
    return rules.pop() if len(rules) == 1 else None


def _shifted(lines: Sequence[str], shift: tuple[str, str] | None) -> list[str]:
    drop, add = shift or ("", "")
    return [add + line.removeprefix(drop) if line.strip() else "" for line in lines]


def _margin(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _without_blank_ends(lines: Sequence[str]) -> list[str]:
    full = [i for i, line in enumerate(lines) if line.strip()]
    return list(lines[full[0] : full[-1] + 1]) if full else []


def _closest(lines: Sequence[str], search: Sequence[str], number: int) -> str:
    wanted = next(line.strip() for line in search if line.strip())[:_COMPARED_CHARS]
    stripped = [line.strip()[:_COMPARED_CHARS] for line in lines[:_COMPARED_LINES]]
    close = difflib.get_close_matches(wanted, [line for line in stripped if line], n=3, cutoff=0.5)
    if not close:
        return f"block {number}: no line of the program is like the first line of SEARCH: {wanted}"
    quoted = "\n".join(f"  line {stripped.index(line) + 1}: {line}" for line in dict.fromkeys(close))
    return (
        f"block {number}: SEARCH is not in the program. Its first line is: {wanted}\nThe closest lines are:\n{quoted}"
    )
