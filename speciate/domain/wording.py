"""What is wrong with a value, in words: people read what is expected rather than a regular expression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from speciate.domain import values

_PATTERNS: Final = {
    values.SLUG: "lower-case words joined by hyphens, such as my-problem",
    values.IDENTIFIER: "letters, digits and underscores, and no digit first",
    values.FILE_NAME: "the name of a file without a folder: letters, digits, dots, hyphens and underscores",
    values.MODULE_NAME: "the name of a Python module, such as scipy.optimize",
    values.WEB_ADDRESS: "an address that begins with http:// or https://",
    values.WORD: "1 to 255 visible ASCII characters without blanks",
    values.ONE_LINE: "one line without control characters",
    values.LINE: "one line without control characters, or nothing",
    values.TAG: "letters, digits and any of . _ : / = + -, a letter or digit first",
    values.NO_NUL: "a text without NUL characters",
    values.KEY_ID: "the id of a stored key: 36 digits, letters from a to f and hyphens",
}


def wording(detail: Mapping[str, Any]) -> str:
    """Return the message for one entry of ``ValidationError.errors()``.

    Args:
        detail: Its ``type``, ``msg`` and, for some types, ``ctx``.
    """
    context = detail.get("ctx") or {}
    match detail["type"]:
        case "missing":
            return "is missing: expected a value"
        case "string_pattern_mismatch" if (words := _PATTERNS.get(context.get("pattern", ""))) is not None:
            return f"expected {words}"
        case "literal_error" | "enum" if "expected" in context:
            return f"expected {context['expected']}"
        case "value_error":
            return str(detail["msg"]).removeprefix("Value error, ")
        case _:
            return str(detail["msg"])


def short(value: object) -> str:
    """Return what a message shows of a value that is not what was expected."""
    try:
        text = repr(value)
    except ValueError:  # more digits than Python writes
        return "a number of thousands of digits"
    return text if len(text) <= 60 else text[:57] + "..."
