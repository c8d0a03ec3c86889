"""Prompts and rollouts: what a policy was asked and what it answered."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from speciate.domain.policy import PolicyRole
from speciate.domain.values import digest_of


@dataclass(frozen=True)
class Prompt:
    """A prompt, stable part first so that a server's prefix cache can hold it.

    Attributes:
        system: Who the policy is and how it must answer.
        user: The problem, then what changes from prompt to prompt.
    """

    system: str
    user: str

    @cached_property
    def digest(self) -> str:
        """SHA-256 of both parts."""
        return digest_of([self.system, self.user])

    def text(self) -> str:
        """Return the prompt as one text, for policies that complete."""
        return f"{self.system}\n\n{self.user}" if self.system else self.user


@dataclass(frozen=True, slots=True)
class Completion:
    """One completion.

    Attributes:
        text: What the policy wrote.
        tokens: Completion tokens.
        finish_reason: ``stop``, ``length``, … as the endpoint says.
        mean_logprob: Mean log-probability of its tokens, natural logarithm, where asked for.
    """

    text: str
    tokens: int = 0
    finish_reason: str = "stop"
    mean_logprob: float | None = None


@dataclass(frozen=True, slots=True)
class Rollout:
    """A completion with where it came from and what was read out of it.

    Attributes:
        role: What the policy was asked to do.
        prompt: What it was asked.
        completion: What it answered.
        seed: Seed of the request.
        prompt_tokens: Prompt tokens, counted once per request and booked on its first rollout.
        latency_s: Seconds the request took.
        answers: Programs read out of it.
        reason: Why nothing could be read, or None.
        policy: Position of the policy that was asked among those of its role.
        advice: Number of the advice that the prompt carried, or was to improve on; None where the run writes none.
    """

    role: PolicyRole
    prompt: Prompt
    completion: Completion
    seed: int
    prompt_tokens: int = 0
    latency_s: float = 0.0
    answers: int = 0
    reason: str | None = None
    policy: int = 0
    advice: int | None = None

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens that this rollout is charged."""
        return self.prompt_tokens + self.completion.tokens
