"""Sanitize, fence and shorten prompt text. Text from models, candidates and authors is untrusted."""

import re
from typing import Final

from speciate.domain.rollout import Prompt
from speciate.domain.values import UNSTORABLE

_CONTROLS: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_BACKTICKS: Final = re.compile("`{3,}")
_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_CUT_NOTE: Final = "\n… cut …\n"


def unstorable(text: str) -> str | None:
    match = UNSTORABLE.search(text)
    if match is None:
        return None
    name = "a null byte" if match.group() == "\x00" else "half of a surrogate pair"
    return f"{name} at character {match.start() + 1}"


def printable(text: str) -> str:
    """Replace control characters, which could rewrite a terminal or reverse a line."""
    return _CONTROLS.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def bounded(text: str, limit: int) -> str:
    """Cut the middle out of a text longer than ``limit`` characters; the note in its place comes on top."""
    if len(text) <= limit:
        return text
    head = limit * 2 // 3
    return f"{text[:head]}\n… {len(text) - limit} characters cut …\n{text[head - limit :]}"


def fenced(text: str, info: str = "") -> str:
    ticks = "`" * max(3, 1 + max((len(run) for run in _BACKTICKS.findall(text)), default=2))
    return f"{ticks}{info}\n{text if text.endswith(chr(10)) else text + chr(10)}{ticks}"


def token_bound(text: str) -> int:
    """Return an upper bound on the tokens of a text: its UTF-8 bytes.

    No tokenizer is needed. A tokenizer with byte fallback, as all current large models have, never produces more tokens
    than bytes; English and code take about a third of the bound.
    """
    return len(text.encode("utf-8", "surrogatepass"))


def prompt_tokens(prompt: Prompt) -> int:
    """Return an upper bound on the tokens of a prompt sent as one text, without a chat template."""
    return token_bound(prompt.text())


def clipped(prompt: Prompt, most: int) -> Prompt:
    """Cut the middle out of a prompt's parts, the user's first, until it has at most ``most`` tokens."""
    if prompt_tokens(prompt) <= most:
        return prompt
    most -= token_bound("\n\n")  # between the parts
    system = _clipped(prompt.system, max(most // 2, most - token_bound(prompt.user)))
    return Prompt(system, _clipped(prompt.user, most - token_bound(system)))


def _clipped(text: str, most: int) -> str:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most:
        return text
    ticks = max((2 + len(fence[1]) for line in text.split("\n") if (fence := _FENCE.match(line))), default=0)
    room = max(0, most - token_bound(_CUT_NOTE) - 2 * ticks)
    head = data[: room - room // 3].decode("utf-8", "ignore")
    tail = data[len(data) - room // 3 :].decode("utf-8", "ignore")
    # A fence that the cut leaves open is closed before it and opened again after it; half of a fence is left out.
    start = len(text) - len(tail)
    line = 1 + text.rfind("\n", 0, start)
    if line < start and _FENCE.match(text, line):
        line = start = start + len(tail.partition("\n")[0]) + 1
    closing, opening = _open_fence(head), _open_fence(text[:line])
    return (f"{head}\n{closing}" if closing else head) + _CUT_NOTE + (f"{opening}\n" if opening else "") + text[start:]


def _open_fence(text: str) -> str:
    """Return the backticks or tildes of the fence that a text leaves open (CommonMark 0.31, section 4.5), or ''."""
    ticks = ""
    for fence in filter(None, map(_FENCE.match, text.split("\n"))):
        if not ticks:
            ticks = fence[1] if "`" not in fence[2] or fence[1][0] == "~" else ""
        elif fence[1].startswith(ticks) and not fence[2].strip():
            ticks = ""
    return ticks
