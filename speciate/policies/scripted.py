"""Answer from a script: for tests, replays and benchmarks of everything except policies."""

import hashlib
from enum import StrEnum
from typing import Final, Self

from pydantic import Field, model_validator

from speciate.domain.rollout import Completion
from speciate.domain.values import Value
from speciate.policies.kind import MODEL, LocalClient, PolicyKind
from speciate.ports.policy import SampleRequest, SampleResult

_NUMBER: Final = "{number}"


class CompletionOrder(StrEnum):
    """Choice of a completion, by the request's seed s and the completion's index i; earlier requests do not matter."""

    CYCLE = "cycle"
    """Text ``(s + i) mod count``."""
    SEED = "seed"
    """A text drawn by a hash of (s, i)."""


class ScriptedOptions(Value):
    """Options of ``scripted``: either ``completions`` or ``template``."""

    completions: tuple[str, ...] = Field(default=(), max_length=100_000)
    """Texts to answer with."""
    template: str = Field(default="", max_length=1 << 20)
    """Text in which ``{number}`` is replaced by a number that differs for every seed and completion."""
    order: CompletionOrder = CompletionOrder.CYCLE
    """Choice among ``completions``."""
    tokens_per_completion: int = Field(default=0, ge=0, le=10**9)
    """Tokens charged for each completion."""
    prompt_tokens: int = Field(default=0, ge=0, le=10**9)
    """Tokens charged for each prompt."""

    @model_validator(mode="after")
    def _one_script(self) -> Self:
        if bool(self.completions) == bool(self.template):
            raise ValueError("expected either completions (a list of texts) or template (a text with {number})")
        return self


class ScriptedPolicy(LocalClient[ScriptedOptions]):
    """Client that answers every request from the policy's script; equal seeds get equal answers."""

    options_type = ScriptedOptions

    def token_ceiling(self, request: SampleRequest) -> int:
        return self._options.prompt_tokens + request.n * self._options.tokens_per_completion

    def _answer(self, request: SampleRequest) -> SampleResult:
        texts = (self._text(request.seed, index) for index in range(request.n))
        tokens = self._options.tokens_per_completion
        return SampleResult(tuple(Completion(text, tokens) for text in texts), self._options.prompt_tokens)

    def _text(self, seed: int, index: int) -> str:
        if self._options.template:
            return self._options.template.replace(_NUMBER, str(_hashed(seed, index)))
        position = seed + index if self._options.order is CompletionOrder.CYCLE else _hashed(seed, index)
        return self._options.completions[position % len(self._options.completions)]


def _hashed(seed: int, index: int) -> int:
    """Return a number below 2**53, which every JSON parser reads exactly."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{index}".encode()).digest()[:8]) >> 11


KIND: Final = PolicyKind(ScriptedPolicy, ScriptedOptions, "answers from a script, for tests and replays", fields=MODEL)
