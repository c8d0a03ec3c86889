"""Read the tokens that an endpoint reports, within what a request can cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speciate.policies.numbers import read_count


@dataclass(frozen=True, slots=True)
class TokenCeilings:
    """Upper bounds of a request's tokens.

    Attributes:
        prompt: The prompt: no tokenizer produces more tokens than bytes.
        longest: One completion.
        completion: All completions together.
    """

    prompt: int
    longest: int
    completion: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Reported tokens of a response; None where the report is missing or impossible.

    Attributes:
        prompt: Tokens of the prompt.
        completion: Tokens of all completions, reasoning included.
        reasoning: Tokens spent on reasoning, 0 if none are reported.
    """

    prompt: int | None = None
    completion: int | None = None
    reasoning: int = 0


def read_usage(reported: object, ceilings: TokenCeilings) -> Usage:
    """Return the reported tokens; more than a request can cost count as the most that it can.

    Some providers do not bound reasoning by the limit of tokens. Their excess is not charged, as it is not reserved.

    OpenAI counts reasoning among the completion tokens. Gemini and xAI leave it out there, and count it in
    ``total_tokens`` only; it is billed as output everywhere.
    """
    if not isinstance(reported, dict):
        return Usage()
    asked, written = read_count(reported.get("prompt_tokens")), read_count(reported.get("completion_tokens"))
    prompt = None if asked is None else min(asked, ceilings.prompt)
    if written is None:
        return Usage(prompt)
    completion = min(written, ceilings.completion)
    total = read_count(reported.get("total_tokens"))
    hidden = 0 if total is None or asked is None else max(0, total - asked - written)
    hidden = min(hidden, ceilings.completion - completion)
    details = reported.get("completion_tokens_details")
    stated = read_count(details.get("reasoning_tokens"), completion + hidden) if isinstance(details, dict) else None
    return Usage(prompt, completion + hidden, max(stated or 0, hidden))


def divide(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a number in proportion to weights, equally if all are 0; the sum stays exact."""
    weights = weights if sum(weights) else [1] * len(weights)
    whole, shares, before, seen = sum(weights), list[int](), 0, 0
    for weight in weights:
        seen += weight
        shares.append(total * seen // whole - before)
        before += shares[-1]
    return shares
