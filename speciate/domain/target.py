"""Targets, and the claims of candidates that meet one."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from pydantic import Field

from speciate.domain.values import Identifier, Value

BETTER: Final = "better_than_initial"
"""Name of the target of a problem whose user names none."""
TargetSet = int
"""A set of a problem's targets as a bit mask: bit i stands for the target at position i."""


class Target(Value):
    """A named rule over the reward vector."""

    name: Identifier = Field(examples=["record_level"])
    """Name in the unlock record."""
    rule: str = Field(min_length=1, max_length=10_000, examples=["sum_of_radii >= 2.635 and overlap <= 0"])
    """Comparisons of raw rewards with numbers, joined by `and`, `or`, `not` and parentheses."""
    unlock: bool = Field(default=False, examples=[True])
    """True for the target that unlocks the problem."""
    description: str = Field(default="", max_length=2000, examples=["The best published value"])
    """One line on what meeting the target means."""


class ClaimState(StrEnum):
    PENDING = "pending"
    CONFIRMED = "confirmed"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True)
class Claim:
    """A candidate that met a target, with what the run had spent by then.

    A second evaluation of the candidate confirms or refutes the claim. Only confirmed claims count as unlocks.
    """

    target: str
    number: int
    evaluations: int
    """Evaluations spent, including this candidate."""
    tokens: int
    """Tokens spent when the candidate was committed."""
    seconds: float
    """Running seconds spent when the candidate was committed."""
    unlock: bool
    state: ClaimState
