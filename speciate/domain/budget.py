"""Budgets of a run, and what it has spent. Work is reserved before and settled after, so a budget is never exceeded."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from speciate.domain.documented import Flag
from speciate.domain.values import Value

REASONABLE: Final = {"evaluations": 10**6, "tokens": 10**9, "seconds": 30 * 86400, "dollars": 1000}
"""Limits above which users must confirm a budget: a million evaluations, 10⁹ tokens, 30 days, 1000 US dollars."""

_ROUNDING: Final = 1e-9
"""Share of a budget of dollars that counts as spent: sums of floats are not exact."""


def beyond_reason(limits: Mapping[str, object]) -> str:
    """Return the limits above ``REASONABLE`` as text, such as ``2,000,000 evaluations``; empty if there are none."""
    amounts = ((limits.get(name), name, most) for name, most in REASONABLE.items())
    large = [(v, name) for v, name, most in amounts if isinstance(v, int | float) and most < v < math.inf]
    return " and ".join(f"{v:,} {name}" for v, name in large)


class Budget(Value):
    """Limits of a run; at least one is required."""

    omitted_at_default: ClassVar[frozenset[str]] = frozenset({"dollars"})

    # Strict: a boolean or a numeric text is a mistake here.
    evaluations: Annotated[int | None, Flag("--budget", "--evaluations", "-b")] = Field(
        default=None, ge=1, le=10**12, strict=True
    )
    """Evaluations: one for each answer of the policy, also a duplicate or unreadable one. Confirmations are free."""
    tokens: Annotated[int | None, Flag("--tokens")] = Field(default=None, ge=1, le=10**15, strict=True)
    """Prompt and completion tokens together, over all requests."""
    seconds: Annotated[float | None, Flag("--seconds")] = Field(default=None, gt=0, le=10**9, strict=True)
    """Seconds in state ``running``; pauses do not count."""
    dollars: Annotated[float | None, Flag("--dollars")] = Field(default=None, gt=0, le=10**9, strict=True)
    """US dollars, by the prices of the policies."""

    @model_validator(mode="after")
    def _has_a_limit(self) -> Self:
        if (self.evaluations, self.tokens, self.seconds, self.dollars) == (None, None, None, None):
            raise ValueError(
                "a budget needs at least one of evaluations, tokens, seconds, dollars: expected a positive number"
            )
        return self

    @property
    def limits_requests(self) -> bool:
        """True if the cost of a request has to be reserved before it is sent."""
        return self.tokens is not None or self.dollars is not None


@dataclass(frozen=True, slots=True)
class Spent:
    """Spent and reserved amounts of a run."""

    evaluations: int = 0
    tokens: int = 0
    seconds: float = 0.0
    """Seconds in state ``running``."""
    reserved_evaluations: int = 0
    """Evaluations reserved by work in flight."""
    reserved_tokens: int = 0
    """Tokens reserved by requests in flight; after the end, by those in flight when the run ended."""
    cost: float = 0.0
    """US dollars settled."""

    def evaluations_left(self, budget: Budget) -> int | None:
        """Return the evaluations that can still be reserved, or None without a limit."""
        if budget.evaluations is None:
            return None
        return max(0, budget.evaluations - self.evaluations - self.reserved_evaluations)

    def tokens_left(self, budget: Budget) -> int | None:
        return None if budget.tokens is None else max(0, budget.tokens - self.tokens - self.reserved_tokens)

    def seconds_left(self, budget: Budget) -> float | None:
        return None if budget.seconds is None else max(0.0, budget.seconds - self.seconds)

    def dollars_left(self, budget: Budget, token_price: float) -> float | None:
        """Return the US dollars left, or None without a limit.

        ``token_price`` is the most US dollars that a token in flight costs.
        """
        if budget.dollars is None:
            return None
        left = budget.dollars - self.cost - self.reserved_tokens * token_price
        return left if left > _ROUNDING * budget.dollars else 0.0

    def affords(self, tokens: int, budget: Budget, token_price: float) -> bool:
        tokens_left, dollars_left = self.tokens_left(budget), self.dollars_left(budget, token_price)
        return (tokens_left is None or tokens <= tokens_left) and (
            dollars_left is None or tokens * token_price <= dollars_left
        )
