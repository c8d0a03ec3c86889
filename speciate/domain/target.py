"""Targets, and the claims of candidates that meet one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from pydantic import Field

from speciate.domain.values import Identifier, Value


class Target(Value):
    """A named rule over the reward vector.

    Attributes:
        name: Name in the record, such as ``record_level``.
        rule: Rule in the grammar of ``speciate.domain.rule``, over raw rewards.
        unlock: True if meeting the target unlocks the problem; exactly one target of a problem does.
        description: One line on what meeting the target means.
    """

    name: Identifier
    rule: str = Field(min_length=1, max_length=10_000)
    unlock: bool = False
    description: str = Field(default="", max_length=2000)


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
