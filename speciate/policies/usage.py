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
    """Return the reported tokens.

    OpenAI counts reasoning among the completion tokens. Gemini and xAI leave it out there, and count it in
    ``total_tokens`` only; it is billed as output everywhere.
    """
    if not isinstance(reported, dict):
        return Usage()
    prompt = read_count(reported.get("prompt_tokens"), ceilings.prompt)
    completion = read_count(reported.get("completion_tokens"), ceilings.completion)
    if completion is None:
        return Usage(prompt)
    total = read_count(reported.get("total_tokens"))
    hidden = 0 if total is None or prompt is None else total - prompt - completion
    if hidden < 0 or completion + hidden > ceilings.completion:
        hidden = 0
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
