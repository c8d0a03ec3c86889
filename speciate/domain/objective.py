"""Objectives of a problem: the components of its reward vector."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from speciate.domain.values import Finite, Identifier, Value


class Direction(StrEnum):
    """Direction of improvement."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


class ObjectiveRole(StrEnum):
    """Role of an objective in the search."""

    OBJECTIVE = "objective"
    """Improved by the search."""
    CONSTRAINT = "constraint"
    """Bounded by ``limit``: every feasible candidate ranks above every infeasible one."""
    RECORD = "record"
    """Recorded, never selected on (running time, number of calls, …)."""


class Objective(Value):
    """One component of the reward vector.

    Attributes:
        name: Name used by the evaluator and in rules.
        direction: Direction of improvement.
        role: Role in the search: improved, constrained or only recorded.
        range: ``(low, high)`` in the author's unit: the scale on which objectives are compared. Values outside are
            allowed and not clipped.
        limit: Bound of a constraint (at most it if minimised, at least it if maximised).
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
        """Name with an arrow to its better end, for display."""
        return f"{self.name} {'↑' if self.direction is Direction.MAXIMIZE else '↓'}"
