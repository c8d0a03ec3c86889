"""Find the lines of keys in a TOML document, because ``tomllib`` returns values without lines.

``tomllib`` has parsed the text before, so this scanner can assume a valid document and only follows keys, tables and
nesting.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Sequence
from typing import Final

from speciate.domain.errors import FieldError

Path = tuple[str | int, ...]

_BLANK: Final = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_STRINGS: Final = (r'"""(?:\\.|[^\\])*?"{3,5}', r"'''.*?'{3,5}", r'"(?:\\.|[^"\\])*"', r"'[^']*'")
_STRING: Final = re.compile("|".join(_STRINGS), re.DOTALL)
# Texts and comments of a possibly invalid document. Unclosed texts match, too: otherwise the search would scan the rest
# of the document for each quote.
_ENDED: Final = (
    r'"""(?:[^"\\]+|\\.?|"(?!""))*+"{0,5}',
    r"'''(?:[^']+|'(?!''))*+'{0,5}",
    r'"(?:[^"\\\n]+|\\.?)*+"?',
    r"'[^'\n]*'?",
)
_TEXT: Final = re.compile("|".join((*_ENDED, "#[^\n]*")), re.DOTALL)
_BARE_KEY: Final = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR: Final = re.compile(r"[^,\]}\n#]*")


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
    bare: str | None = None
    if sum(map(text.count, "=,[")) > MAX_VALUES:
        # Programs and comments contain many of these characters, so remove them first.
        bare = _without_texts(text)
        if sum(map(bare.count, "=,[")) > MAX_VALUES:
            message = (
                f"holds more than {MAX_VALUES} values: expected cases in a file of their own, cases = 'cases.json'"
            )
            return FieldError(message, line=1)
    bare = _without_texts(text) if bare is None else bare
    exceeded = [
        (at, message)
        for at, message in (
            (_long_key(bare), f"has a key of more than {MAX_KEY_PARTS} parts: expected fewer dots"),
            (_deep_value(bare), f"is nested deeper than {MAX_DEPTH}: expected tables of plain values"),
        )
        if at is not None
    ]
    if not exceeded:
        return None
    at, message = min(exceeded)
    return FieldError(message, line=bare.count("\n", 0, at) + 1)


def _without_texts(text: str) -> str:
    return _TEXT.sub(lambda match: "\n" * match[0].count("\n"), text)


def _long_key(bare: str) -> int | None:
    match = _LONG_KEY.search(bare)
    return match.end() if match else None


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
    """Return the line, counted from 1, of every key, table and array element of a valid TOML document."""
    scanner = _Scanner(text)
    scanner.document()
    return scanner.places


class _Scanner:
    def __init__(self, text: str) -> None:
        self.places: dict[Path, int] = {}
        self._text = text
        self._at = 0
        self._line = 1
        self._counted_to = 0
        self._tables: Counter[Path] = Counter()

    def document(self) -> None:
        table: Path = ()
        self._skip()
        while self._at < len(self._text):
            if self._text[self._at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._skip()

    def _header(self) -> Path:
        line = self._here()
        brackets = 2 if self._text.startswith("[[", self._at) else 1
        self._at += brackets
        parts = self._key()
        self._at += brackets
        parent = self._inside(parts[:-1])
        path = (*parent, parts[-1])
        self.places.setdefault(path, line)
        if brackets == 2:
            path = (*path, self._tables[path])
            self._tables[path[:-1]] += 1
            self.places[path] = line
        return path

    def _inside(self, parts: Path) -> Path:
        """Return the full path of a table; in an array of tables it refers to the last element."""
        path: Path = ()
        for part in parts:
            path = (*path, part)
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
        return path

    def _pair(self, table: Path) -> None:
        line = self._here()
        path = table
        for part in self._key():
            path = (*path, part)
            self.places.setdefault(path, line)
        self._at += 1  # the equals sign
        self._skip()
        self._value(path)

    def _key(self) -> Path:
        parts: list[str] = []
        while True:
            self._skip()
            if self._text[self._at] in "\"'":
                raw = self._take(_STRING)
                parts.append(str(tomllib.loads(f"key = {raw}")["key"]))
            else:
                parts.append(self._take(_BARE_KEY))
            self._skip()
            if not self._text.startswith(".", self._at):
                return tuple(parts)
            self._at += 1

    def _value(self, path: Path) -> None:
        match self._text[self._at]:
            case '"' | "'":
                self._take(_STRING)
            case "[":
                self._array(path)
            case "{":
                self._inline_table(path)
            case _:
                self._take(_SCALAR)

    def _array(self, path: Path) -> None:
        self._at += 1
        index = 0
        while not self._closes("]"):
            self.places[(*path, index)] = self._here()
            self._value((*path, index))
            index += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while not self._closes("}"):
            self._pair(path)

    def _closes(self, bracket: str) -> bool:
        self._skip()
        if self._text.startswith(",", self._at):
            self._at += 1
            self._skip()
        closes = self._text.startswith(bracket, self._at)
        self._at += closes
        return closes

    def _skip(self) -> None:
        self._take(_BLANK)

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise ValueError(f"not valid TOML at offset {self._at}: expected a document that tomllib has read")
        self._at = match.end()
        return match.group()

    def _here(self) -> int:
        self._line += self._text.count("\n", self._counted_to, self._at)
        self._counted_to = self._at
        return self._line
