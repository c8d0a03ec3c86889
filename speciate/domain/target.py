"""Targets, and the claims of candidates that meet one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from speciate.domain.values import Identifier, Value


class Target(Value):
    """A named rule over the reward vector."""

    name: Identifier = Field(description="Name in the unlock record.", examples=["record_level"])
    rule: str = Field(
        min_length=1,
        max_length=10_000,
        description="Comparisons of raw rewards with numbers, joined by `and`, `or`, `not` and parentheses.",
        examples=["sum_of_radii >= 2.635 and overlap <= 0"],
    )
    unlock: bool = Field(default=False, description="True for the target that unlocks the problem.", examples=[True])
    description: str = Field(
        default="",
        max_length=2000,
        description="One line on what meeting the target means.",
        examples=["The best published value"],
    )


class ClaimState(StrEnum):
    """State of a claim."""

    PENDING = "pending"
    CONFIRMED = "confirmed"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True)
class Claim:
    """A candidate that met a target, with what the run had spent by then.

    A second evaluation of the candidate confirms or refutes the claim. Only confirmed claims count as unlocks.

    Attributes:
        target: Name of the target.
        number: Number of the candidate in its run.
        evaluations: Evaluations spent, including this candidate.
        tokens: Tokens spent when the candidate was committed.
        seconds: Running seconds spent when the candidate was committed.
        unlock: True if the target unlocks the problem.
        state: State of the claim.
    """

    target: str
    number: int
    evaluations: int
    tokens: int
    seconds: float
    unlock: bool
    state: ClaimState
