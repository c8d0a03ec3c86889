"""Read the tokens that an endpoint reports, within what a request can cost."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from speciate.domain.charge import Charge
from speciate.domain.policy import Price
from speciate.policies.numbers import read_count, read_tokens


@dataclass(frozen=True, slots=True)
class TokenCeilings:
    """Upper bounds of a request's tokens: of its prompt, of one completion (``longest``), of all completions."""

    prompt: int
    longest: int
    completion: int


@dataclass(frozen=True, slots=True)
class Usage:
    """Reported tokens of a response, ``completion`` with ``reasoning``; None if the report is missing or impossible."""

    prompt: int | None = None
    completion: int | None = None
    reasoning: int = 0


@dataclass(frozen=True, slots=True)
class Billed:
    """Tokens that attempts cost."""

    prompt: int = 0
    completion: int = 0
    estimated: int = 0
    """Those of them that the endpoint did not report."""

    @property
    def tokens(self) -> int:
        return self.prompt + self.completion

    def __add__(self, other: "Billed") -> "Billed":
        return Billed(self.prompt + other.prompt, self.completion + other.completion, self.estimated + other.estimated)

    def charge(self, price: Price | None) -> Charge:
        return Charge(self.tokens, 0.0 if price is None else price.cost(self.prompt, self.completion), self.estimated)


def billed(usage: Usage, ceilings: TokenCeilings, *, computed: bool) -> Billed:
    """Return what an attempt without an answer cost; if it may have computed one, what is not reported at most."""
    prompt, completion = usage.prompt, usage.completion
    if not computed or (prompt is not None and completion is not None):
        return Billed(prompt or 0, completion or 0)
    prompt_bound = ceilings.prompt if prompt is None else 0
    completion_bound = ceilings.completion if completion is None else 0
    return Billed(prompt or prompt_bound, completion or completion_bound, prompt_bound + completion_bound)


def read_usage(reported: object, ceilings: TokenCeilings) -> Usage:
    """Return the reported tokens; more than a request can cost count as the most that it can.

    Some providers do not bound reasoning by the limit of tokens. Their excess is not charged, as it is not reserved.

    OpenAI counts reasoning among the completion tokens. Gemini and xAI leave it out there, and count it in
    ``total_tokens`` only; it is billed as output everywhere. Some gateways use Anthropic's names, where
    ``input_tokens`` leaves the cached part of a prompt out.
    """
    if not isinstance(reported, dict):
        return Usage()
    total_prompt = _first(reported, "prompt_tokens", "input_tokens")
    written = _first(reported, "completion_tokens", "output_tokens")
    if total_prompt is not None and "prompt_tokens" not in reported:
        cached = (read_tokens(reported.get(f"cache_{kind}_input_tokens")) for kind in ("creation", "read"))
        total_prompt += sum(tokens or 0 for tokens in cached)
    if not total_prompt and not written:  # zeros of a gateway that does not know
        return Usage()
    prompt = None if total_prompt is None else min(total_prompt, ceilings.prompt)
    if written is None:
        return Usage(prompt)
    completion = min(written, ceilings.completion)
    total = read_tokens(reported.get("total_tokens"))
    hidden = 0 if total is None or total_prompt is None else max(0, total - total_prompt - written)
    hidden = min(hidden, ceilings.completion - completion)
    details = reported.get("completion_tokens_details")
    stated = read_count(details.get("reasoning_tokens"), completion + hidden) if isinstance(details, dict) else None
    return Usage(prompt, completion + hidden, max(stated or 0, hidden))


def _first(reported: Mapping[str, object], *names: str) -> int | None:
    return next((count for name in names if (count := read_tokens(reported.get(name))) is not None), None)


def divide(total: int, weights: Sequence[int]) -> list[int]:
    """Divide a number in proportion to weights, equally if all are 0; the sum stays exact."""
    weights = weights if sum(weights) else [1] * len(weights)
    whole, shares, before, seen = sum(weights), list[int](), 0, 0
    for weight in weights:
        seen += weight
        shares.append(total * seen // whole - before)
        before += shares[-1]
    return shares
