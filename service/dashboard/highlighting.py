"""Highlight programs as HTML: spans with classes and no style, in bounded time."""

import re
import time
from functools import lru_cache
from typing import Any, Final

from markupsafe import Markup, escape
from pygments.lexer import Lexer
from pygments.lexers import find_lexer_class_for_filename
from pygments.token import Comment, Keyword, Name, Number, String

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
    if len(text) > MAX_CHARACTERS:
        return escape(text)
    deadline = time.thread_time() + _MAX_SECONDS
    sections = _files(text, problem)
    return Markup("\n").join(_coloured("\n".join(section), _lexer(file), deadline) for file, section in sections)


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


def _coloured(text: str, lexer: Lexer | None, deadline: float) -> Markup:
    if lexer is None or _SLOW.search(text):
        return escape(text)
    pieces: list[str] = []
    # Unlike ``get_tokens``, this keeps every character. Some rules need the line break of a last line.
    for _, kind, value in lexer.get_tokens_unprocessed(f"{text}\n"):
        if time.thread_time() > deadline:
            return _coloured(text, None, deadline)
        name, escaped = _class(kind), str(escape(value))
        if name:
            escaped = "\n".join(line and f'<span class="{name}">{line}</span>' for line in escaped.split("\n"))
        pieces.append(escaped)
    return Markup("".join(pieces)[:-1])  # noqa: S704  every piece is escaped


@lru_cache(maxsize=256)
def _class(kind: Any) -> str:
    return next((name for parent, name in _CLASSES if kind in parent), "")
