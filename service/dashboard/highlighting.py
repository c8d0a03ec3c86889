"""Highlight programs as HTML: spans with classes and no style, in bounded time."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import find_lexer_class_for_filename
from pygments.token import Comment, Keyword, Name, Number, String

from service.diffs import Diff
from speciate.domain.files import PYTHON_MAIN, heading_in
from speciate.domain.known_languages import KNOWN
from speciate.domain.problem import Problem, ProblemKind

MAX_CHARACTERS: Final = 40_000
"""Length of a text above which it has no colours."""

_MAX_SECONDS: Final = 0.3  # of processor time, so that a page keeps its colours on a busy machine
# The deadline is checked between tokens. One match of the lexers of C and C++ takes quadratic time in runs of these
# characters and holds the interpreter lock: 0.2 s for 1,200 of them, minutes for 20,000. Many runs of 100 in one match
# take 0.15 s.
_SLOW: Final = re.compile(r"[\s&*]{101}")
_FILES: Final = (PYTHON_MAIN, "data.json", *(language.file for language in KNOWN.values()))
"""Files of every language that has colours: other lexers may take longer for one match."""

_HEADERS: Final = 2
_HUNK: Final = re.compile(r"@@ -(\d+),\d+ \+(\d+),\d+ @@")
_CLASSES: Final = (
    (Comment, "c"),
    (Keyword, "k"),
    (String, "s"),
    (Number, "n"),
    (Name.Function, "f"),
    (Name.Class, "f"),
    (Name.Decorator, "f"),
    (Name.Builtin, "b"),
)


def highlight(text: str, problem: Problem) -> Markup:
    """Return a program as HTML; a text that is long, slow or in an unknown language has no colours."""
    return Markup("\n").join(_lines(text, problem))


def highlight_diff(diff: Diff, before: str, after: str, problem: Problem, limit: int) -> list[tuple[str, Markup]]:
    """Return a class (``at``, ``add``, ``cut`` or empty) and the HTML of each line of a diff."""
    text = diff.text if len(diff.text) <= limit else diff.text[:limit].rpartition("\n")[0]
    sides = [_lines(program, problem) for program in (before, after)]
    old: Iterator[Markup] = iter(())
    new = old
    lines: list[tuple[str, Markup]] = []
    for line in text.split("\n"):
        hunk = _HUNK.fullmatch(line)
        if hunk:
            old, new = (iter(side[int(at) - 1 :]) for side, at in zip(sides, hunk.groups(), strict=True))
        if hunk or len(lines) < _HEADERS:
            lines.append(("at" if hunk else "", escape(line)))
        elif line.startswith("-"):
            lines.append(("cut", "-" + next(old)))
        elif line.startswith("+"):
            lines.append(("add", "+" + next(new)))
        else:
            next(old)
            lines.append(("", " " + next(new)))
    return lines


def _lines(text: str, problem: Problem) -> list[Markup]:
    if len(text) > MAX_CHARACTERS:
        return [escape(line) for line in text.split("\n")]
    deadline = time.thread_time() + _MAX_SECONDS
    lines: list[Markup] = []
    for file, section in _files(text, problem):
        lines += _coloured("\n".join(section), _lexer(file), deadline)
    return lines


def _files(text: str, problem: Problem) -> list[tuple[str, list[str]]]:
    name = problem.main_file
    if problem.kind is ProblemKind.DATA:
        name = "data.json" if text.lstrip()[:1] in {"{", "["} else "data.txt"
    files: list[tuple[str, list[str]]] = [(name, [])]
    for line in text.split("\n"):
        if problem.many_files and (heading := heading_in(line)):
            files.append((heading, []))
        files[-1][1].append(line)
    return [(name, lines) for name, lines in files if lines]


@lru_cache(maxsize=64)
def _lexer(file: str) -> Lexer | None:
    lexer = find_lexer_class_for_filename(file)
    return lexer() if lexer is not None and lexer in _known_lexers() else None


@lru_cache(maxsize=1)
def _known_lexers() -> frozenset[type[Lexer] | None]:
    return frozenset(map(find_lexer_class_for_filename, _FILES))


def _coloured(text: str, lexer: Lexer | None, deadline: float) -> list[Markup]:
    if lexer is None or _SLOW.search(text):
        return [escape(line) for line in text.split("\n")]
    pieces: list[str] = []
    # Unlike ``get_tokens``, this keeps every character, so that lines stay what they are in a diff. Some rules need the
    # line break of a last line.
    for _, kind, value in lexer.get_tokens_unprocessed(f"{text}\n"):
        if time.thread_time() > deadline:
            return _coloured(text, None, deadline)
        name, escaped = _class(kind), str(escape(value))
        if name:
            escaped = "\n".join(line and f'<span class="{name}">{line}</span>' for line in escaped.split("\n"))
        pieces.append(escaped)
    return [Markup(line) for line in "".join(pieces).split("\n")[:-1]]  # noqa: S704  every piece is escaped


@lru_cache(maxsize=256)
def _class(kind: Any) -> str:
    return next((name for parent, name in _CLASSES if kind in parent), "")
