"""What a problem rewards: named quantities with a direction, a role and a range."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from speciate.domain.values import Finite, Identifier, Value


class Direction(StrEnum):
    """Which way is better."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


class ObjectiveRole(StrEnum):
    """What search does with the quantity."""

    OBJECTIVE = "objective"
    """Search improves it."""
    CONSTRAINT = "constraint"
    """Must meet ``limit``; search ranks every candidate that does above every one that does not."""
    RECORD = "record"
    """Written down, never selected on (running time, number of calls, …)."""


class Objective(Value):
    """One component of the reward vector.

    Attributes:
        name: Name used by the evaluator and in rules.
        direction: Which way is better.
        role: Whether search improves it, obeys it or only records it.
        range: ``(low, high)`` in the author's unit: the scale on which objectives are compared. Values outside are
            allowed and stay comparable; nothing is clipped.
        limit: For constraints: the value that must be met (at most it when minimised, at least it when maximised).
        description: One line for people and prompts.
    """

    name: Identifier
    direction: Direction = Direction.MAXIMIZE
    role: ObjectiveRole = ObjectiveRole.OBJECTIVE
    range: tuple[Finite, Finite] = (0.0, 1.0)
    limit: Finite = 0.0
    description: str = Field(default="", max_length=2000)

    @model_validator(mode="after")
    def _range_is_ordered(self) -> Self:
        low, high = self.range
        if not low < high:
            raise ValueError(f"range of {self.name!r} is [{low}, {high}]: expected low < high")
        return self

    @property
    def directed(self) -> str:
        """Its name with an arrow to its better end, as people are shown it."""
        return f"{self.name} {'↑' if self.direction is Direction.MAXIMIZE else '↓'}"
