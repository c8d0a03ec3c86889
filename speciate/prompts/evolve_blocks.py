"""EVOLVE-BLOCKs: marked regions of a program that a policy may change. Everything outside is protected.

A region lies between two lines that hold a marker alone, in a comment of any language or bare::

    # EVOLVE-BLOCK-START
    ...
    # EVOLVE-BLOCK-END
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_WORD: Final = "EVOLVE-BLOCK-"
_MARKER: Final = r"EVOLVE-BLOCK-(START|END)\b"
_COMMENTS: Final = (
    r"#[#=!{]*+",  # Python, shell, R, Julia
    r"/{2,}+!?",  # C++, Java, Go, JavaScript, Rust, Verilog
    r"/?\*++>?",  # C, CSS, and further lines of such a comment; COBOL
    r"-{2,}+(?:\[=*+\[)?",  # SQL, Lua, Haskell, VHDL, Ada
    r";++",  # Lisp, assemblers, INI
    r"%++[{%]?",  # TeX, MATLAB, Erlang, Prolog
    r"!++",  # Fortran
    r"<[!%]-{2,}+",  # HTML, XML, Markdown, JSP
    r"\(\*++",  # OCaml, Pascal, Wolfram
    r"\{[-#*!%]*+",  # Haskell, Pascal, templates
    r"\.\.|\\++",  # reStructuredText, Forth
    r"::|@?(?i:rem)\b|dnl\b|[Cc](?=[ \t])",  # batch, BASIC, M4, Fortran 77
    r"\"(?=[^\"]*\Z)|'(?=[^']*\Z)",  # Vim, BASIC; a closed quote would be a text
    r"(?=EVOLVE-BLOCK-(?:START|END)[ \t:]*\Z)",  # no comment at all
)
# Without backtracking: lines of models may be long.
_MARKER_LINE: Final = re.compile(rf"[ \t]*+(?:{'|'.join(_COMMENTS)})[ \t]*+(?:[-=*~>#]++[ \t]*+)?+{_MARKER}")
_IN_CODE: Final = re.compile(rf"(?:#|//|/\*|--|;|%|!|\(\*)[ \t]*+{_MARKER}")
_CLOSED: Final = {"/*": "*/", "<!--": "-->", "(*": "*)"}
_NUMBER: Final = re.compile(r"(?<![\w.])\d")
_LINE: Final = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")


class MarkerError(ValueError):
    """The markers of a program do not pair up; ``line`` counts from 1, ``message`` does not repeat it."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(f"line {line}: {message}")
        self.message = message
        self.line = line


@dataclass(frozen=True, slots=True)
class Block:
    start: int
    """Line of the START marker, from 1."""
    end: int
    """Line of the END marker; the lines strictly between may change."""


def lines_of(text: str) -> list[str]:
    """Split at the line breaks of Python's tokenizer (``str.splitlines`` splits at more places); line ends are kept."""
    return _LINE.findall(text)


def find_blocks(text: str) -> tuple[Block, ...]:
    """Return the regions of a program in order; ``MarkerError`` if markers are unbalanced or share a line with code."""
    if _WORD not in text:
        return ()
    blocks: list[Block] = []
    opened: int | None = None
    for number, line in enumerate(lines_of(text), start=1):
        word = _marker(line, number)
        if word == "START":
            if opened is not None:
                nested = f"EVOLVE-BLOCK-START inside the block that line {opened} opened: blocks do not nest"
                raise MarkerError(nested, number)
            opened = number
        elif word == "END":
            if opened is None:
                raise MarkerError("EVOLVE-BLOCK-END without an EVOLVE-BLOCK-START before it", number)
            blocks.append(Block(opened, number))
            opened = None
    if opened is not None:
        raise MarkerError("EVOLVE-BLOCK-START without an EVOLVE-BLOCK-END after it", opened)
    return tuple(blocks)


def blocks_or_none(text: str) -> tuple[Block, ...]:
    """Return the regions, or none if the markers are invalid: for texts that no loader has checked."""
    try:
        return find_blocks(text)
    except MarkerError:
        return ()


def contents_of(text: str, blocks: Sequence[Block]) -> list[str]:
    lines = lines_of(text)
    return ["".join(lines[block.start : block.end - 1]) for block in blocks]


def place_in(blocks: Sequence[Block], line: int, named: str = "your block") -> str:
    """Return the place of a line, from 1, within the regions, such as "line 2 of your block"; empty outside of them."""
    for number, block in enumerate(blocks, 1):
        if block.start < line < block.end:
            return f"line {line - block.start} of {named if len(blocks) == 1 else f'block {number}'}"
    return ""


def has_numbers(text: str) -> bool:
    """Return True if the regions (or a text without regions) hold a number, in comments and strings, too."""
    blocks = blocks_or_none(text)
    return any(map(_NUMBER.search, contents_of(text, blocks) if blocks else [text]))


def outside_of(text: str, blocks: Sequence[Block]) -> list[str]:
    """Return the text before, between and after the regions, without markers: one more piece than regions."""
    lines = lines_of(text)
    starts = [0, *(block.end for block in blocks)]
    ends = [*(block.start - 1 for block in blocks), len(lines)]
    return ["".join(lines[start:end]) for start, end in zip(starts, ends, strict=True)]


def with_contents(text: str, blocks: Sequence[Block], contents: Sequence[str]) -> str:
    lines = lines_of(text)
    parts: list[str] = []
    position = 0
    for block, content in zip(blocks, contents, strict=True):
        parts += lines[position : block.start]
        parts.append(content if not content or content.endswith("\n") else content + "\n")
        position = block.end - 1
    return "".join(parts + lines[position:])


def without_markers(text: str) -> str:
    return "".join(line for line in lines_of(text) if not _marker_in(line)) if _WORD in text else text


def has_stray_marker(text: str) -> bool:
    """Return True if a text without regions names a marker: somewhere else than alone in a comment."""
    return f"{_WORD}START" in text and not blocks_or_none(text)


def _marker_in(line: str) -> re.Match[str] | None:
    return _MARKER_LINE.match(line.rstrip("\r\n")) if _WORD in line else None


def _marker(line: str, number: int) -> str | None:
    marker = _marker_in(line)
    shared = (_IN_CODE.search(line) if _WORD in line else None) if marker is None else _before_code(line, marker)
    if shared is not None:
        raise MarkerError(f"EVOLVE-BLOCK-{shared[1]} shares the line with code: it needs a line of its own", number)
    if marker is None:
        return None
    if _WORD in line[marker.end() :]:
        raise MarkerError("two EVOLVE-BLOCK markers share the line: each needs a line of its own", number)
    return marker[1]


def _before_code(line: str, marker: re.Match[str]) -> re.Match[str] | None:
    closing = next((end for start, end in _CLOSED.items() if line.lstrip().startswith(start)), None)
    return marker if closing and line[marker.end() :].partition(closing)[2].strip() else None
