"""Prompts and rollouts: what a policy was asked and what it answered."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated

from pydantic import StringConstraints

from speciate.domain.policy import PolicyRole
from speciate.domain.values import digest_of

TemplateText = Annotated[str, StringConstraints(min_length=1, max_length=20_000)]


class TemplateName(StrEnum):
    """Which part of a prompt a template is for."""

    SYSTEM = "system"
    """Who the policy is and how it must answer: the same for a whole run."""
    PROPOSE = "propose"
    """What is shown when nothing is to be changed."""
    CHANGE = "change"
    """What is shown with a program to change."""
    PROPOSE_REQUESTS = "propose_requests"
    """One request for a first program on each line; one of them is drawn for each prompt."""
    CHANGE_REQUESTS = "change_requests"
    """One request for a change on each line; one of them is drawn for each prompt."""
    GUIDANCE = "guidance"
    """What is shown where the policy is asked for advice, in runs that write some."""


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
