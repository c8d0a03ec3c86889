"""Programs of many files as one text: every file under a heading, turned into each other without loss.

The text is::

    # === file: candidate.py ===
    from geometry import area
    # === file: geometry.py ===
    def area(): ...

A line of a file that looks like a heading has one backslash more in the text: ``# \\=== file: x ===``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

PYTHON_MAIN: Final = "candidate.py"
"""Main file of a program in Python, which others may import as ``candidate``."""
MODULE_FILE: Final = re.compile(r"(?:[A-Za-z_]\w*/)*[A-Za-z_]\w*\.py", re.ASCII)
"""Name of a file that Python can import."""

MAX_FILES: Final = 64
_MAX_NAME: Final = 200

_HEADING: Final = re.compile(r"# === file: (.*) ===[ \t]*")
_TO_ESCAPE: Final = re.compile(r"(?m)^# (\\*=== file: )")
_ESCAPED: Final = re.compile(r"(?m)^# \\(\\*=== file: )")
_PART: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_NAME: Final = re.compile(rf"{_PART}(?:/{_PART}){{0,7}}")


class FilesError(ValueError):
    """A text is no set of files; ``line`` counts from 1, ``message`` leaves it out."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line


def heading(name: str) -> str:
    """Return the line under which a file stands."""
    return f"# === file: {name} ==="


def heading_in(line: str) -> str | None:
    """Return the name in a heading, or None for any other line; the name is not checked."""
    found = _HEADING.fullmatch(line)
    return found[1].strip() if found else None


def sections_of(text: str) -> dict[str, str]:
    """Return what stands under each heading, in order, as it stands there.

    Raises:
        FilesError: There is no heading, something stands before the first one, or a name is bad or there twice.
    """
    sections: dict[str, list[str]] = {}
    into: list[str] | None = None
    for number, line in enumerate(_ended(text).split("\n")[:-1], start=1):
        name = heading_in(line)
        if name is None:
            if into is None:
                if line.strip():
                    raise FilesError(f"expected a heading such as: {heading('candidate.py')}", number)
            else:
                into.append(line)
            continue
        if (wrong := _wrong_with(name)) is not None or name in sections:
            raise FilesError(wrong or f"the file {name!r} is there already", number)
        if len(sections) == MAX_FILES:
            raise FilesError(f"more than {MAX_FILES} files", number)
        into = sections[name] = []
    if not sections:
        raise FilesError(f"expected a heading such as: {heading('candidate.py')}", 1)
    return {name: "".join(f"{line}\n" for line in lines) for name, lines in sections.items()}


def text_of_sections(sections: Mapping[str, str]) -> str:
    """Return the text of sections as they stand in one."""
    return "".join(f"{heading(name)}\n{_ended(section)}" for name, section in sections.items())


def files_of(text: str) -> dict[str, str]:
    """Return the files of a program by name, in order.

    Raises:
        FilesError: As ``sections_of``.
    """
    return {name: _ESCAPED.sub(r"# \1", section) for name, section in sections_of(text).items()}


def text_of(files: Mapping[str, str]) -> str:
    """Return the one text of a program; a file that does not end with a line break gets one.

    Raises:
        FilesError: There is no file, there are too many, or a name is bad.
    """
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
    return f"{name[:_MAX_NAME]!r} is no name of a file: expected one such as geometry.py or shapes/circle.py"
