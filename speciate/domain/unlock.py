"""The record of reached targets. One that counts as an unlock was confirmed by evaluating the candidate again."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class ClaimState(StrEnum):
    """What became of a candidate's claim to have reached a target."""

    PENDING = "pending"
    CONFIRMED = "confirmed"
    REFUTED = "refuted"


@dataclass(frozen=True, slots=True)
class Claim:
    """A candidate that met a target, with what the run had spent when it did.

    Attributes:
        target: Name of the target.
        number: Run-wide number of the candidate.
        evaluations: Evaluations spent up to and including this candidate.
        tokens: Tokens spent when it was committed.
        seconds: Running seconds spent when it was committed.
        unlock: Whether the target is the one that unlocks the problem.
        state: Whether it has been confirmed.
    """

    target: str
    number: int
    evaluations: int
    tokens: int
    seconds: float
    unlock: bool
    state: ClaimState
