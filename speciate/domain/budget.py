"""Budgets of a run. Work is reserved before and settled after, so a budget is never exceeded."""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, model_validator

from speciate.domain.documented import Flag
from speciate.domain.values import Value

REASONABLE: Final = {"evaluations": 10**6, "tokens": 10**9, "seconds": 30 * 86400, "dollars": 1000}
"""Limits above which users must confirm a budget: a million evaluations, 10⁹ tokens, 30 days, 1000 US dollars."""


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
