"""Parse frames of a process that is not trusted: the worker does, and scripts for the calls they make directly."""

from __future__ import annotations

import json
import math
import re
from itertools import accumulate
from typing import Any, NoReturn

MAX_DEPTH = 200
# Linear: a string without an end matches, too, instead of failing at every quote, and possessive repeats keep no state.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = {**dict.fromkeys(b"[{", 1), **dict.fromkeys(b"]}", -1)}
"""Change of the depth at a bracket."""


class FrameError(ValueError):
    """The bytes violate the protocol; the message describes the violation."""


def check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise FrameError(f"a frame of {size} bytes: at most {max_bytes} are allowed")


def parse(body: bytes) -> dict[str, Any]:
    """Return a JSON object without NaN or infinities, no deeper than ``MAX_DEPTH``; raises ``FrameError``."""
    if _is_too_deep(body):
        raise FrameError(f"the frame is nested deeper than {MAX_DEPTH} levels")
    try:
        text = body.decode("utf-8")
        message, end = _DECODER.raw_decode(text)
    except ValueError as error:  # also UnicodeDecodeError, and integers of more digits than Python converts
        raise FrameError(f"the frame is not JSON: {error}") from None
    if end != len(text):
        raise FrameError("the frame is not JSON: it has extra data")
    if not isinstance(message, dict):
        raise FrameError(f"the frame is a JSON {type(message).__name__}: expected an object")
    _check(message)
    return message


def _is_too_deep(body: bytes) -> bool:
    """Count brackets before the parser: a script may have raised its recursion limit beyond what the stack holds."""
    if body.count(b"[") + body.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _STRING.sub(b"", body).translate(None, _NO_BRACKETS)
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > MAX_DEPTH


def _check(message: dict[str, Any]) -> None:
    """Reject values that the parser accepts: deep nesting, and numbers such as 1e999 that become infinite."""
    level: list[Any] = [message]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            kind = type(value)  # the parser makes no subclasses
            if kind is dict:
                below += value.values()
            elif kind is list:
                below += value
            elif kind is float and not math.isfinite(value):
                raise FrameError("the frame holds a number that is too large for a float")
        if not below:
            return
        level = below
    raise FrameError(f"the frame is nested deeper than {MAX_DEPTH} levels")


def _refuse_constant(name: str) -> NoReturn:
    raise FrameError(f"the frame holds {name}")


# One: the functions of ``json`` build another for every message with such arguments.
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
