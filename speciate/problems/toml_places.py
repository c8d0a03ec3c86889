"""Find the lines of keys in a TOML document, because ``tomllib`` returns values without lines.

``tomllib`` has parsed the text before, so this scanner can assume a valid document.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from speciate.domain.errors import FieldError

Path = tuple[str | int, ...]

# Texts and comments of a possibly invalid document. Unclosed texts match, too: otherwise the search would scan the rest
# of the document for each quote.
_ENDED: Final = (
    r'"""(?:[^"\\]+|\\.?|"(?!""))*+"{0,5}',
    r"'''(?:[^']+|'(?!''))*+'{0,5}",
    r'"(?:[^"\\\n]+|\\.?)*+"?',
    r"'[^'\n]*'?",
)
_TEXT: Final = re.compile("|".join((*_ENDED, "#[^\n]*")), re.DOTALL)
_PART: Final = r"""[ \t]*(?:[A-Za-z0-9_-]+|"(?:\\.|[^"\\\n])*"|'[^'\n]*')[ \t]*"""
_KEY: Final = rf"{_PART}(?:\.{_PART})*"
_HEADER: Final = re.compile(rf"[ \t]*(\[\[?)({_KEY})\]")
_PAIR: Final = re.compile(rf"({_KEY})=")


MAX_VALUES: Final = 100_000
"""Limit on the values in a TOML text: ``tomllib`` reads them twenty times slower than JSON."""

MAX_KEY_PARTS: Final = 8
"""Limit on the parts of a dotted key: reading a key takes the square of their number."""

MAX_DEPTH: Final = 20
"""Limit on the nesting of arrays and inline tables: every value inside them takes time and memory in proportion."""

# A key of too many parts, once strings are removed. The lookbehind allows one attempt in each run of key characters:
# attempts from every character would take the square of the run's length.
_LONG_KEY: Final = re.compile(rf"(?<![A-Za-z0-9_. \t-])(?:[A-Za-z0-9_ \t-]*+\.){{{MAX_KEY_PARTS}}}")
_BRACKET: Final = re.compile(r"[\[\]{}]")


def limit_error(text: str) -> FieldError | None:
    """Return the first limit that a TOML text exceeds, with its line, or None; the text is not parsed."""
    bare = _TEXT.sub(lambda match: "\n" * match[0].count("\n"), text)
    if sum(map(bare.count, "=,[")) > MAX_VALUES:
        expected = "expected cases in a file of their own, cases = 'cases.json'"
        return FieldError(f"holds more than {MAX_VALUES} values: {expected}", line=1)
    exceeded = []
    if (key := _LONG_KEY.search(bare)) is not None:
        exceeded.append((key.end(), f"has a key of more than {MAX_KEY_PARTS} parts: expected fewer dots"))
    if (deep := _deep_value(bare)) is not None:
        exceeded.append((deep, f"is nested deeper than {MAX_DEPTH}: expected tables of plain values"))
    if not exceeded:
        return None
    at, message = min(exceeded)
    return FieldError(message, line=bare.count("\n", 0, at) + 1)


def _deep_value(bare: str) -> int | None:
    depth = 0
    for match in _BRACKET.finditer(bare):
        depth += 1 if match[0] in "[{" else -1
        if depth > MAX_DEPTH:
            return match.start()
        if depth < 0:  # tomllib reads no further
            return None
    return None


def line_of(places: dict[Path, int], path: Sequence[str | int]) -> int:
    nearest = tuple(path)
    while nearest and nearest not in places:
        nearest = nearest[:-1]
    return places.get(nearest, 1)


def toml_places(text: str) -> dict[Path, int]:
    """Return the line, counted from 1, of every key and table of a valid TOML document, and of the elements of arrays
    that are not inside others.
    """
    places: dict[Path, int] = {}
    counts: Counter[Path] = Counter()  # of the elements of arrays of tables
    table, path, index, depth = Path(), Path(), 0, 0
    for number, line in enumerate(_TEXT.sub(_on_one_line, text).split("\n"), 1):
        if depth == 0 and (header := _HEADER.match(line)):
            *outer, last = _keys(header[2])
            table = (*_element(outer, counts), last)
            places.setdefault(table, number)
            if header[1] == "[[":
                counts[table] += 1
                table = (*table, counts[table] - 1)
                places[table] = number
            continue
        rest = line
        if depth == 0 and (pair := _PAIR.match(line)):
            path, index, rest = table, 0, line[pair.end() :]
            for part in _keys(pair[1]):
                path = (*path, part)
                places.setdefault(path, number)
        for character in _TEXT.sub("x", rest):
            if depth == 1 and character not in " \t\r,]}":
                places.setdefault((*path, index), number)
            depth += (character in "[{") - (character in "]}")
            index += depth == 1 and character == ","
    return places


def _on_one_line(text: re.Match[str]) -> str:
    """Return a text as it stands, a longer one as its line breaks, and a comment as nothing."""
    breaks = "\n" * text[0].count("\n")
    return breaks if text[0][0] == "#" else f"0{breaks}" if text[0].startswith(('"""', "'''")) else text[0]


def _element(parts: Sequence[str | int], counts: Counter[Path]) -> Path:
    """Return the full path of a table; in an array of tables it refers to the last element."""
    path: Path = ()
    for part in parts:
        path = (*path, part)
        if path in counts:
            path = (*path, counts[path] - 1)
    return path


def _keys(dotted: str) -> Path:
    value: Any = tomllib.loads(f"{dotted} = 0")
    path: Path = ()
    while isinstance(value, dict):
        ((key, value),) = value.items()
        path = (*path, key)
    return path
