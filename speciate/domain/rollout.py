"""Prompts, completions and rollouts, and the names of prompt templates."""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Final

from pydantic import StringConstraints

from speciate.domain.policy import PolicyRole
from speciate.domain.values import digest_of, storable

REFUSED: Final = "refused"
"""Finish reason of a completion without an answer. Its text is what the endpoint or the model said instead, in one
line; a second line is a remedy."""
ONLY_REASONING: Final = "only_reasoning"
"""Finish reason of a completion whose endpoint sent reasoning and no answer. Its text is the reasoning."""

TemplateText = Annotated[str, StringConstraints(min_length=1, max_length=20_000)]


class TemplateName(StrEnum):
    SYSTEM = "system"
    """Role of the policy and form of the answer: the same for a whole run."""
    PROPOSE = "propose"
    """Prompt for a program from scratch."""
    CHANGE = "change"
    """Prompt with a program to change."""
    PROPOSE_REQUESTS = "propose_requests"
    """Requests for a first program, one per line; one is drawn for each prompt."""
    CHANGE_REQUESTS = "change_requests"
    """Requests for a change, one per line; one is drawn for each prompt."""
    REPAIR_REQUESTS = "repair_requests"
    """The same if the program to change failed."""
    GUIDANCE = "guidance"
    """Prompt for a piece of advice, in runs with guidance."""


@dataclass(frozen=True)
class Prompt:
    """A prompt with its stable part first, for a server's prefix cache."""

    system: str
    """Role of the policy and form of the answer."""
    user: str
    """The problem, then the parts that change from prompt to prompt."""

    @cached_property
    def digest(self) -> str:
        return digest_of([self.system, self.user])

    def messages(self, *, merged: bool = False) -> list[dict[str, str]]:
        """Return the messages of a chat request; ``merged`` into one of the user, for templates without other roles."""
        if merged:
            return [{"role": "user", "content": storable(self.text())}]
        system = [{"role": "system", "content": storable(self.system)}] if self.system else []
        return [*system, {"role": "user", "content": storable(self.user)}]

    def text(self) -> str:
        """Return the prompt as one text, for completion endpoints."""
        return f"{self.system}\n\n{self.user}" if self.system else self.user


@dataclass(frozen=True, slots=True)
class Completion:
    text: str
    tokens: int = 0
    finish_reason: str = "stop"
    """``stop``, ``length``, … as reported by the endpoint, ``REFUSED`` or ``ONLY_REASONING``."""
    mean_logprob: float | None = None
    """Mean log-probability of its tokens, natural logarithm, if requested."""
    logprobs: tuple[float, ...] = ()
    """Log-probability of each token; empty unless requested and reported for every token."""
    token_ids: tuple[int, ...] = ()
    """Id of each token in the policy's vocabulary; empty unless ``logprobs`` are known and the endpoint reports ids."""
    reasoning_tokens: int = 0
    """Those of its tokens that were spent on reasoning, as reported by the endpoint."""

    @property
    def has_answer(self) -> bool:
        """False if its text is no text for an answer."""
        return self.finish_reason not in (REFUSED, ONLY_REASONING)


@dataclass(frozen=True, slots=True)
class Rollout:
    """A completion with its request and the number of answers read from it."""

    role: PolicyRole
    prompt: Prompt
    completion: Completion
    seed: int
    prompt_tokens: int = 0
    """Prompt tokens, counted once per request and booked on its first rollout."""
    latency_s: float = 0.0
    """Latency of the request, in seconds."""
    answers: int = 0
    """Programs read from the completion."""
    reason: str | None = None
    """Reason for an unreadable completion, or None."""
    policy: int = 0
    """Position of the policy among those of its role."""
    version: str | None = None
    """ID of the learned policy version that wrote it; None for the policy that the run began with."""
    advice: int | None = None
    """Number of the advice in the prompt, or to improve on; None if the run has no guidance."""
    proposed_by: str | None = None
    """ID of the policy of kind ``external`` that sent the completion; None if the service sampled it."""
    author: str | None = None
    """Name of the token that sent it."""
    model: str | None = None
    """Model that wrote it, as its author names it."""
    estimated_tokens: int = 0
    """Those of its tokens that the endpoint did not report."""
    cost: float | None = None
    """US dollars as the policy reports them, booked as the prompt tokens are; None to compute them from its price."""

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens charged to this rollout."""
        return self.prompt_tokens + self.completion.tokens
