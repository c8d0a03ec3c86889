"""Text from models, candidates and authors is hostile: what may be stored, and how it is shown inside a prompt."""

from __future__ import annotations

import re
from typing import Final

from speciate.domain.values import UNSTORABLE

_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BACKTICKS: Final = re.compile("`{3,}")


def unstorable(text: str) -> str | None:
    """Say why a text cannot be stored (PostgreSQL refuses null, UTF-8 refuses surrogates), or return None."""
    found = UNSTORABLE.search(text)
    if found is None:
        return None
    name = "a null byte" if found.group() == "\x00" else "half of a surrogate pair"
    return f"{name} at character {found.start() + 1}"


def printable(text: str) -> str:
    """Return the text without control characters, which could rewrite a terminal or reverse a line."""
    return _CONTROLS.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def bounded(text: str, limit: int) -> str:
    """Return the text, its middle cut out when it is longer than ``limit`` characters (a little is added to say so)."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]}\n… {len(text) - limit} characters cut …\n{text[head - limit :]}"


def fenced(text: str, info: str = "") -> str:
    """Return the text in a fence that nothing inside it can close."""
    ticks = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=2))
    return f"{ticks}{info}\n{text if text.endswith(chr(10)) else text + chr(10)}{ticks}"
