"""Budgets: what a run may spend. They are reserved before and settled after, so they are never exceeded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from pydantic import Field, model_validator

from speciate.domain.values import Value


class Budget(Value):
    """What a run may spend; at least one limit is given.

    Attributes:
        evaluations: Answers of the policy, each of which costs one, whether it is evaluated, a duplicate of an
            evaluated program, or unreadable. Confirmations of a target are the service's own and cost nothing.
        tokens: Prompt and completion tokens together, over all requests.
        seconds: Seconds in which the run is running; pauses do not count.
    """

    # Strict: a truth value or a text that could be read as a number is a mistake here.
    evaluations: int | None = Field(default=None, ge=1, le=10**12, strict=True)
    tokens: int | None = Field(default=None, ge=1, le=10**15, strict=True)
    seconds: float | None = Field(default=None, gt=0, le=10**9, strict=True)

    @model_validator(mode="after")
    def _something_ends_the_run(self) -> Self:
        if self.evaluations is None and self.tokens is None and self.seconds is None:
            raise ValueError("a budget needs at least one of evaluations, tokens, seconds: expected a positive number")
        return self


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run has spent and set aside.

    Attributes:
        evaluations: Answers accounted for.
        tokens: Tokens accounted for.
        seconds: Seconds in which it was running.
        reserved_evaluations: Set aside by work in flight.
        reserved_tokens: Set aside by requests in flight; of a run that has ended, by those that were then.
    """

    evaluations: int = 0
    tokens: int = 0
    seconds: float = 0.0
    reserved_evaluations: int = 0
    reserved_tokens: int = 0

    def evaluations_left(self, budget: Budget) -> int | None:
        """Return how many evaluations can still be reserved, or None without such a limit."""
        if budget.evaluations is None:
            return None
        return max(0, budget.evaluations - self.evaluations - self.reserved_evaluations)

    def tokens_left(self, budget: Budget) -> int | None:
        """Return how many tokens can still be reserved, or None without such a limit."""
        return None if budget.tokens is None else max(0, budget.tokens - self.tokens - self.reserved_tokens)

    def seconds_left(self, budget: Budget) -> float | None:
        """Return how many seconds are left, or None without such a limit."""
        return None if budget.seconds is None else max(0.0, budget.seconds - self.seconds)
