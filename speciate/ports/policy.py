"""The port to a policy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from speciate.domain.candidate import Individual
from speciate.domain.policy import Policy, PolicyRole
from speciate.domain.rollout import Completion, Prompt


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One prompt with how many completions are wanted.

    Attributes:
        prompt: What is asked.
        role: From scratch, or a change of ``parents``.
        n: Completions wanted.
        seed: Seed of the draw.
        parents: The programs the prompt shows, first the one to change: for policies that read no text.
        seed_program: The problem's seed program, likewise; empty when there is none.
    """

    prompt: Prompt
    role: PolicyRole
    n: int
    seed: int
    parents: tuple[Individual, ...] = ()
    seed_program: str = ""


@dataclass(frozen=True, slots=True)
class SampleResult:
    """What a policy answered to one request.

    Attributes:
        completions: At most n completions.
        prompt_tokens: Tokens of the prompt, counted once.
        latency_s: Seconds the request took.
    """

    completions: tuple[Completion, ...]
    prompt_tokens: int = 0
    latency_s: float = 0.0

    @property
    def tokens(self) -> int:
        """All tokens the request is charged."""
        return self.prompt_tokens + sum(completion.tokens for completion in self.completions)


class PolicyClient(Protocol):
    """Asks one policy."""

    def token_ceiling(self, request: SampleRequest) -> int:
        """Return a number of tokens that the request can never exceed, so that a budget can be kept."""
        ...

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """Answer every request, in order; requests may run side by side.

        Raises:
            PolicyUnavailableError: The endpoint did not answer usefully after bounded retries.
        """
        ...

    def ping(self) -> str:
        """Return one line that says the policy can be used.

        Raises:
            PolicyUnavailableError: It cannot; the message says why and how to mend it.
        """
        ...


@runtime_checkable
class IdentifyingClient(Protocol):
    """A client that can tell which weights its endpoint serves; other clients need no such thing."""

    def identify(self) -> Policy:
        """Return the policy with what its endpoint says of it, so far as that can be known.

        Raises:
            PolicyUnavailableError: It cannot be used, or is not what was registered; the message says why.
        """
        ...

    def revalidate(self) -> None:
        """Have the endpoint looked at again before it answers: a run begins."""
        ...
