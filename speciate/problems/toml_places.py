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


def is_readable(text: str) -> bool:
    """Return True if a TOML text contains at most ``MAX_VALUES`` values, without parsing it."""
    if sum(map(text.count, "=,[")) <= MAX_VALUES:
        return True
    # Programs and comments contain many of these characters, so remove them first.
    return sum(map(_TEXT.sub("", text).count, "=,[")) <= MAX_VALUES


def line_of(places: dict[Path, int], path: Sequence[str | int]) -> int:
    """Return the line of a path or of the nearest table around it, or line 1 if none exists."""
    found = tuple(path)
    while found and found not in places:
        found = found[:-1]
    return places.get(found, 1)


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
