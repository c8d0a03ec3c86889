"""Read programs from calls of tools that were not offered, as models trained on agents write them.

Known forms: ``<tool_call>`` with JSON (Hermes, Qwen) or with ``<parameter=NAME>`` (Qwen Coder), ``<invoke>`` with
``<parameter name="NAME">``, and ``[TOOL_CALLS]`` with JSON (Mistral).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Final

from speciate.prompts.envelopes import texts_in

_CALL: Final = re.compile(r"<(tool_call|function_calls|invoke)\b[^>\n]{0,200}>|\[TOOL_CALLS\]")
_PARAMETER: Final = re.compile(r"<parameter(?:=| name=\")([\w.-]{1,60})\"?>\n?")
_END: Final = "</parameter>"
_NAME: Final = re.compile(r"(?:\"name\"\s*:\s*\"|<function=|<invoke name=\")([\w.-]{1,60})")


def calls_tool(text: str) -> str | None:
    """Return the name of the tool that a completion calls, empty if it has none; None without a call."""
    if _CALL.search(text) is None:
        return None
    named = _NAME.search(text)
    return named[1] if named else ""


def with_programs(text: str) -> str:
    """Return a completion with each tool call replaced by the program in its arguments, as a fenced block.

    Of several texts in the arguments the one with the most lines is the program; a file name is shorter.
    """
    call = _CALL.search(text)
    if call is None:
        return text
    head, calls = text[: call.start()], text[call.end() :]
    programs = [max(group, key=lambda value: (value.count("\n"), len(value))) for group in _arguments(calls) if group]
    blocks = [value if "```" in value else f"```python\n{value.strip()}\n```" for value in programs]
    return "\n".join([head, *blocks])


def _arguments(calls: str) -> Iterator[list[str]]:
    parameters = [value for _, value in _parameters(calls)]
    if parameters:
        yield parameters
        return
    decoder = json.JSONDecoder(strict=False)
    place = 0
    while (start := min((i for mark in "{[" if (i := calls.find(mark, place)) >= 0), default=-1)) >= 0:
        try:
            value, place = decoder.raw_decode(calls, start)
        except (ValueError, RecursionError):
            # A truncated or malformed call; searching on from the next brace could take quadratic time.
            return
        yield [text for text in texts_in(value) if "\n" in text or " " in text]


def _parameters(calls: str) -> Iterator[tuple[str, str]]:
    opening = _PARAMETER.search(calls)
    while opening is not None and (end := calls.find(_END, opening.end())) >= 0:
        yield opening[1], calls[opening.end() : end]
        opening = _PARAMETER.search(calls, end)
