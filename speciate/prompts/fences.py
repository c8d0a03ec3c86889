"""Fenced blocks in what a model wrote, tolerant of what models do: text around, other fences, a missing end."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Final

SEPARATOR: Final = "---"
"""Line between two answers of one completion (VPO's format)."""

_FENCE: Final = re.compile(r"[ \t]*(?P<ticks>`{3,}|~{3,})[ \t]*(?P<info>[\w.+#-]*)[^`\n]*$")
_TRAILING_OPENING: Final = re.compile(r"(?P<ticks>```)(?P<info>python3?|py)[ \t]*$")
_PYTHON: Final = frozenset({"", "python", "python3", "py", "py3"})
_DEEPER: Final = 4
"""Columns by which a fence in a docstring stands deeper than that of the program; CommonMark takes it for text, too."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """One fenced block.

    Attributes:
        info: Language that the opening fence names, in lower case.
        text: What stands inside.
        section: How many separator lines stand before it, outside of blocks.
    """

    info: str
    text: str
    section: int

    @property
    def may_be_python(self) -> bool:
        """Whether its label does not rule out a Python program."""
        return self.info in _PYTHON


def fenced_blocks(text: str) -> list[Fenced]:
    """Return the fenced blocks in order. The last one may lack its closing fence: the completion was cut off."""
    scanner = _FenceScanner()
    for line in text.split("\n"):
        scanner.feed(line)
    scanner.close()
    return scanner.blocks


def sections(text: str) -> list[str]:
    """Return the parts of a text between separator lines, blank parts left out."""
    parts = re.split(rf"(?m)^[ \t]*{SEPARATOR}[ \t]*$", text)
    return [part for part in parts if part.strip()]


class _FenceScanner:
    def __init__(self) -> None:
        self.blocks: list[Fenced] = []
        self._section = 0
        self._ticks: str | None = None
        self._info = ""
        self._lines: list[str] = []

    def feed(self, line: str) -> None:
        fence = _FENCE.match(line)
        if self._ticks is None:
            opening = fence or _TRAILING_OPENING.search(line)
            if opening is not None:
                self._open(opening)
            elif line.strip() == SEPARATOR:
                self._section += 1
        elif fence is None or not fence["ticks"].startswith(self._ticks) or self._is_quoted(fence):
            self._lines.append(line)
        else:
            self.close()
            if fence["info"]:
                # A labelled fence opens a block; the one before it was never closed.
                self._open(fence)

    def close(self) -> None:
        if self._ticks is None:
            return
        separated = False
        while self._lines and self._lines[-1].strip() in ("", SEPARATOR):
            separated |= self._lines.pop().strip() == SEPARATOR
        text = textwrap.dedent("\n".join(self._lines)) if self._indented() else "\n".join(self._lines)
        self.blocks.append(Fenced(self._info, text + "\n" if text else "", self._section))
        self._section += separated
        self._ticks = None

    def _open(self, fence: re.Match[str]) -> None:
        self._ticks, self._info, self._lines = fence["ticks"], fence["info"].lower(), []
        self._margin = fence.start("ticks")
        self._quoted: int | None = None

    def _is_quoted(self, fence: re.Match[str]) -> bool:
        """Tell whether a fence begins or ends an example in a docstring: it is labelled and deeper than the block's."""
        depth = fence.start("ticks")
        if self._quoted is None and fence["info"] and depth >= self._margin + _DEEPER:
            self._quoted = depth
            return True
        ends = self._quoted == depth and not fence["info"]
        self._quoted = None if ends else self._quoted
        return ends

    def _indented(self) -> bool:
        # Only a block whose fence does not begin its line (in a list) is shifted: a diff or the inside of a function
        # may be indented on purpose.
        return self._margin > 0
