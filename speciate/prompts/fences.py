"""Find fenced code blocks in completions, tolerating surrounding text, nested fences and a missing end."""

import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Final

SEPARATOR: Final = "---"
"""Line between two answers of a completion (VPO's format)."""

_FENCE: Final = re.compile(r"[ \t]*+(?P<ticks>`{3,}+|~{3,}+)[ \t]*+(?P<info>[\w.+#-]*+)[^`\n]*+$")
_TRAILING_OPENING: Final = re.compile(r"(?P<ticks>```)(?P<info>python3?|py)[ \t]*$")
PYTHON_LABELS: Final = frozenset({"", "python", "python3", "py", "py3"})
"""Labels of blocks that may hold Python."""

_DEEPER: Final = 4
"""Extra indentation of a fence inside a docstring; CommonMark also treats such a fence as text."""


@dataclass(frozen=True, slots=True)
class Fenced:
    info: str
    """Label of the opening fence, in lower case."""
    text: str
    section: int
    """Number of separator lines before it, outside of blocks."""


def fenced_blocks(text: str) -> list[Fenced]:
    """Return the fenced blocks in order. A truncated completion may lack the last closing fence."""
    return _scanned(text)[0]


def ends_in_block(text: str) -> bool:
    """Return True if the last block of a text is not closed."""
    return _scanned(text)[1]


def _scanned(text: str) -> tuple[list[Fenced], bool]:
    scanner = _FenceScanner()
    for line in text.split("\n"):
        scanner.feed(line)
    return scanner.blocks, scanner.close()


def filled_blocks(text: str) -> list[Fenced]:
    return [block for block in fenced_blocks(text) if block.text.strip()]


def nesting_block(text: str) -> str:
    """Return what stands between the first and the last fence if labelled ones between them open and all close."""
    lines = text.split("\n")
    fences = [(i, fence) for i, fence in enumerate(map(_FENCE.match, lines)) if fence is not None]
    fences = [each for each in fences if each[1]["ticks"].startswith(fences[0][1]["ticks"])]
    depths = [*accumulate((1 if fence["info"] else -1 for _, fence in fences[1:]), initial=1)]
    nests = max(depths) > 1 and 0 in depths and depths.index(0) == len(depths) - 1
    return "".join(f"{line}\n" for line in lines[fences[0][0] + 1 : fences[-1][0]]) if nests else ""


def by_section(blocks: Iterable[Fenced]) -> list[list[str]]:
    return [[block.text for block in group] for _, group in groupby(blocks, key=lambda block: block.section)]


def sections(text: str) -> list[str]:
    return [part for part in re.split(rf"(?m)^[ \t]*{SEPARATOR}[ \t]*$", text) if part.strip()]


def unfenced(text: str) -> str:
    lines = text.strip().split("\n")
    if not lines[0].startswith(("```", "~~~")) or lines[-1].strip("`~ \t"):
        return text
    blocks = fenced_blocks(text.strip())
    return blocks[0].text if len(blocks) == 1 else nesting_block(text) or text


class _FenceScanner:
    def __init__(self) -> None:
        self.blocks: list[Fenced] = []
        self._section = 0
        self._ticks: str | None = None
        self._info = ""
        self._lines: list[str] = []

    def feed(self, line: str) -> None:
        fence = _FENCE.match(line) if "`" in line or "~" in line else None
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
                # A labelled fence opens a new block; the previous one was not closed.
                self._open(fence)

    def close(self) -> bool:
        """Close the open block; return True if there was one."""
        if self._ticks is None:
            return False
        separated = False
        while self._lines and self._lines[-1].strip() in ("", SEPARATOR):
            separated |= self._lines.pop().strip() == SEPARATOR
        text = "\n".join(self._lines)
        # Dedent only blocks with an indented fence (in a list): a diff or a function body may be indented on purpose.
        text = textwrap.dedent(text) if self._margin > 0 else text
        self.blocks.append(Fenced(self._info, text + "\n" if text else "", self._section))
        self._section += separated
        self._ticks = None
        return True

    def _open(self, fence: re.Match[str]) -> None:
        self._ticks, self._info, self._lines = fence["ticks"], fence["info"].lower(), []
        self._margin = fence.start("ticks")
        self._quoted: int | None = None

    def _is_quoted(self, fence: re.Match[str]) -> bool:
        """Return True if a fence delimits an example in a docstring: labelled and deeper than the block's fence."""
        depth = fence.start("ticks")
        if self._quoted is None and fence["info"] and depth >= self._margin + _DEEPER:
            self._quoted = depth
            return True
        ends = self._quoted == depth and not fence["info"]
        self._quoted = None if ends else self._quoted
        return ends
