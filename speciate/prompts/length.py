"""How long a prompt is, and what is left out when it is too long.

Tokens are counted by a bound that needs no tokenizer: one for every byte of UTF-8. A tokenizer that falls back to bytes
(all of today's large models have such a one) never makes more of a text; of English and code it makes about a third.
"""

from __future__ import annotations

from typing import Final

from speciate.domain.rollout import Prompt

_NOTE: Final = "\n… cut …\n"
_BETWEEN: Final = "\n\n"
"""What stands between the parts of a prompt that is sent as one text."""


def token_bound(text: str) -> int:
    """Return a number of tokens that a text never exceeds."""
    return len(text.encode("utf-8", "surrogatepass"))


def prompt_tokens(prompt: Prompt) -> int:
    """Return a number of tokens that a prompt never exceeds as one text; a chat template comes on top of it."""
    return token_bound(prompt.text())


def clipped(prompt: Prompt, most: int) -> Prompt:
    """Return the prompt with the middle of its parts cut out as far as it must be to have at most ``most`` tokens.

    The user's part is cut first; the system's part only where it is over half of all.
    """
    if prompt_tokens(prompt) <= most:
        return prompt
    most -= token_bound(_BETWEEN)
    system = _clipped(prompt.system, max(most // 2, most - token_bound(prompt.user)))
    return Prompt(system, _clipped(prompt.user, most - token_bound(system)))


def _clipped(text: str, most: int) -> str:
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most:
        return text
    room = max(0, most - token_bound(_NOTE))
    tail = room // 3
    head = data[: room - tail].decode("utf-8", "ignore")
    return head + _NOTE + data[len(data) - tail :].decode("utf-8", "ignore")
