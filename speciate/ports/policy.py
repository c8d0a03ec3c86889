"""Port to a policy."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

from speciate.domain.candidate import Individual
from speciate.domain.charge import Charge
from speciate.domain.policy import Policy, PolicyRole, Price
from speciate.domain.problem import Problem
from speciate.domain.rollout import Completion, Prompt


@dataclass(frozen=True, slots=True)
class SampleRequest:
    prompt: Prompt
    role: PolicyRole  # role of the policy for this prompt
    n: int
    seed: int
    # Programs in the prompt, the one to change first. For policies that do not read text.
    parents: tuple[Individual, ...] = ()
    seed_program: str = ""  # the problem's seed program, for the same policies; empty if the problem has none
    keep_tokens: bool = False  # true to request the id and the log-probability of every token
    # Reserve tokens beyond ``PolicyClient.token_ceiling`` for another attempt, after one that cost as many; False if
    # the budget does not hold them. Called from several threads.
    reserve: Callable[[int], bool] = field(default=lambda _: True, compare=False)
    # Return the first parent, its ancestors and their children, ascending by number, each with the weighted mean of its
    # normalised rewards: far below 0 if infeasible, -inf after a failure. Reads the store: only for policies that learn
    # from what was tried.
    relatives: Callable[[], Sequence[tuple[Individual, float]]] = field(default=tuple, compare=False)
    # Answers that are requested at the same time to change the same first parent: by earlier requests of the batch, and
    # by the lanes before this one.
    earlier: int = 0
    replaceable: bool = False  # True if another policy of the run can answer instead: no long waits for this one
    problem: Problem | None = field(default=None, compare=False)  # for policies that write files
    reply: str = ""  # what the reply to continue says after its opening


@dataclass(frozen=True, slots=True)
class SampleResult:
    """A policy's answer to one request."""

    completions: tuple[Completion, ...]  # at most n completions
    # Tokens of the prompt, counted once, and those of failed attempts; the completion tokens of failed attempts count
    # with the first completion.
    prompt_tokens: int = 0
    latency_s: float = 0.0  # duration of the request in seconds
    estimated_tokens: int = 0  # those of all tokens that the endpoint did not report
    cost: float | None = None  # US dollars as the policy reports them; None to compute them from its price

    @property
    def tokens(self) -> int:
        """Total tokens charged for the request."""
        return self.prompt_tokens + sum(completion.tokens for completion in self.completions)

    @property
    def cost_of_each(self) -> float | None:
        """Reported US dollars of each completion on average."""
        return None if self.cost is None else self.cost / len(self.completions)

    def charge(self, price: Price | None) -> Charge:
        cost = self.cost
        if cost is None:
            cost = 0.0 if price is None else price.cost(self.prompt_tokens, self.tokens - self.prompt_tokens)
        return Charge(self.tokens, cost, self.estimated_tokens)

    def plus(self, charge: Charge, price: Price | None) -> "SampleResult":
        """Return the result with what attempts of another policy cost; ``price`` is that of its own policy."""
        return replace(
            self,
            prompt_tokens=self.prompt_tokens + charge.tokens,
            estimated_tokens=self.estimated_tokens + charge.estimated,
            cost=self.charge(price).cost + charge.cost,
        )


class PolicyClient(Protocol):
    def token_ceiling(self, request: SampleRequest) -> int:
        """Return an upper bound of the tokens of one attempt of a request, which keeps runs within their budget."""

    def sample(self, requests: Sequence[SampleRequest]) -> list[SampleResult]:
        """Return one result per request, in order. Requests may run concurrently.

        Raises:
            PolicyUnavailableError: The endpoint gave no usable answer after bounded retries.
        """

    def ping(self) -> str:
        """Return one line that confirms that the policy is usable; the error holds the cause and the fix."""


@runtime_checkable
class IdentifyingClient(Protocol):
    """A client that can identify the weights that its endpoint serves."""

    def identify(self) -> Policy:
        """Return the policy with the facts that its endpoint reports.

        Raises:
            PolicyUnavailableError: The policy is not usable, or differs from the registered one.
        """

    def revalidate(self) -> None:
        """Discard cached facts, so that the next request checks the endpoint again."""
