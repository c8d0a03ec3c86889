"""Programs of several files as one text with a heading per file, converted without loss.

The text is::

    # === file: candidate.py ===
    from geometry import area
    # === file: geometry.py ===
    def area(): ...

A file's line that looks like a heading gets one more backslash in the text: ``# \\=== file: x ===``.
"""

import re
from collections.abc import Mapping
from typing import Final

PYTHON_MAIN: Final = "candidate.py"
"""Main file of a Python program, which other files may import as ``candidate``."""
EVALUATOR: Final = "evaluator.py"
"""Name of an evaluator script in tracebacks."""
MODULE_FILE: Final = re.compile(r"(?:[A-Za-z_]\w*/)*[A-Za-z_]\w*\.py", re.ASCII)
"""Names of files that Python can import."""

MAX_FILES: Final = 64
_MAX_NAME: Final = 200

_HEADING: Final = re.compile(r"# === file: (.*) ===[ \t]*")
_TO_ESCAPE: Final = re.compile(r"(?m)^# (\\*=== file: )")
_ESCAPED: Final = re.compile(r"(?m)^# \\(\\*=== file: )")
_PART: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_NAME: Final = re.compile(rf"{_PART}(?:/{_PART}){{0,7}}")


class FilesError(ValueError):
    """A text is not a set of files; ``line`` counts from 1, ``message`` does not repeat it."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line


def heading(name: str) -> str:
    return f"# === file: {name} ==="


def heading_in(line: str) -> str | None:
    """Return the name in a heading line, unchecked, or None for any other line."""
    match = _HEADING.fullmatch(line)
    return match[1].strip() if match else None


def sections_of(text: str) -> dict[str, str]:
    """Return the text under each heading, in order and still escaped.

    Raises:
        FilesError: There is no heading, text stands before the first one, or a name is invalid or repeated.
    """
    sections: dict[str, list[str]] = {}
    for number, line in enumerate(_ended(text).split("\n")[:-1], start=1):
        name = heading_in(line)
        if name is not None:
            _check_name(name, sections, number)
            sections[name] = []
        elif sections:
            next(reversed(sections.values())).append(line)
        elif line.strip():
            raise FilesError(f"expected a heading such as: {heading('candidate.py')}", number)
    if not sections:
        raise FilesError(f"expected a heading such as: {heading('candidate.py')}", 1)
    return {name: "".join(f"{line}\n" for line in lines) for name, lines in sections.items()}


def _check_name(name: str, sections: Mapping[str, object], line: int) -> None:
    if (wrong := _wrong_with(name)) is not None:
        raise FilesError(wrong, line)
    if name in sections:
        raise FilesError(f"the file {name!r} is repeated", line)
    if len(sections) == MAX_FILES:
        raise FilesError(f"more than {MAX_FILES} files", line)


def text_of_sections(sections: Mapping[str, str]) -> str:
    return "".join(f"{heading(name)}\n{_ended(section)}" for name, section in sections.items())


def files_of(text: str) -> dict[str, str]:
    """Return the files of a program by name, in order; raises as ``sections_of`` does."""
    return {name: _ESCAPED.sub(r"# \1", section) for name, section in sections_of(text).items()}


def text_of(files: Mapping[str, str]) -> str:
    """Return a program as one text; a final line break is added to files without one. May raise ``FilesError``."""
    if wrong := next(filter(None, map(_wrong_with, files)), None):
        raise FilesError(wrong, 1)
    text = text_of_sections({name: _TO_ESCAPE.sub(r"# \\\1", content) for name, content in files.items()})
    sections_of(text)
    return text


def _ended(section: str) -> str:
    return section if not section or section.endswith("\n") else section + "\n"


def _wrong_with(name: str) -> str | None:
    if len(name) <= _MAX_NAME and _NAME.fullmatch(name):
        return None
    return f"{name[:_MAX_NAME]!r} is not a file name: expected one such as geometry.py or shapes/circle.py"
