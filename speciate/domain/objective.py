"""Objectives of a problem: the components of its reward vector."""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar, Self, TypeVar

from pydantic import Field, model_validator

from speciate.domain.arrays import FloatArray
from speciate.domain.values import Finite, Identifier, Value

_Values = TypeVar("_Values", float, FloatArray)


class Direction(StrEnum):
    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


class ObjectiveRole(StrEnum):
    OBJECTIVE = "objective"
    """Improved by the search."""
    CONSTRAINT = "constraint"
    """Bounded by ``limit``: every feasible candidate ranks above every infeasible one."""
    RECORD = "record"
    """Recorded, never selected on (running time, number of calls, …)."""


class Objective(Value):
    omitted_at_default: ClassVar[frozenset[str]] = frozenset({"estimated", "stochastic"})

    name: Identifier = Field(examples=["overlap"])
    """Name used by the evaluator and in rules."""
    direction: Direction = Field(default=Direction.MAXIMIZE, examples=["minimize"])
    """Direction of improvement."""
    role: ObjectiveRole = Field(default=ObjectiveRole.OBJECTIVE, examples=["constraint"])
    """`objective`: the search improves it; `constraint`: bounded by `limit`, feasible candidates rank above all others;
    `record`: stored, never selected on, and in no prompt if its name begins with `held_out`."""
    range: tuple[Finite, Finite] = Field(default=(0.0, 1.0), examples=[(0.0, 0.1)])
    """Low and high end of the scale on which objectives are compared. Values outside are allowed and not clipped."""
    estimated: bool = Field(default=False, examples=[True])
    """True if the range is an estimate: values beyond its better end widen it, those of archived candidates whenever
    parents and survivors are chosen, those of completions whenever a policy learns from them."""
    limit: Finite = Field(default=0.0, examples=[0.001])
    """Bound of a constraint: at most this if minimized, at least this if maximized."""
    stochastic: bool = Field(default=False, examples=[True])
    """True if evaluations of one program differ in this value, by their seed or by the machine."""
    description: str = Field(default="", max_length=2000, examples=["Largest overlap of two circles"])
    """One line for people and prompts."""

    @model_validator(mode="after")
    def _range_is_ordered(self) -> Self:
        low, high = self.range
        if not 0.0 < high - low < math.inf:
            raise ValueError(f"range of {self.name!r} is [{low}, {high}]: expected low < high, at most 1.7e308 apart")
        if self.limit and self.role is not ObjectiveRole.CONSTRAINT:
            raise ValueError(f"limit of {self.name!r} bounds nothing: add role = 'constraint', or remove it")
        return self

    @property
    def held_out(self) -> bool:
        """True if authors of candidates must not see its values: a record whose name begins with ``held_out``."""
        return self.role is ObjectiveRole.RECORD and self.name.startswith("held_out")

    @property
    def directed(self) -> str:
        """Name with its arrow, for display."""
        return f"{self.name} {self.arrow}".rstrip()

    @property
    def arrow(self) -> str:
        """Arrow to the better end; none for a record, which has no better end."""
        if self.role is ObjectiveRole.RECORD:
            return ""
        return "↑" if self.maximized else "↓"

    @property
    def aim(self) -> str:
        """The direction as a word; empty for a record."""
        return "" if self.role is ObjectiveRole.RECORD else self.direction.value

    @property
    def maximized(self) -> bool:
        return self.direction is Direction.MAXIMIZE

    @property
    def comparative(self) -> str:
        """What a better value is: ``higher`` or ``lower``."""
        return "higher" if self.maximized else "lower"

    @property
    def bound(self) -> str:
        """Comparison that values of a constraint fulfil with its limit."""
        return ">=" if self.maximized else "<="

    @property
    def worst(self) -> float:
        """Worst end of the range: the value if nothing was measured."""
        return self.range[not self.maximized]

    @property
    def best(self) -> float:
        return self.range[self.maximized]

    def share(self, values: _Values) -> _Values:
        """Return how near values are to the best end of the range: 1 at that end, 0 at the other."""
        low, high = self.range
        share = (values - low) / (high - low)
        return share if self.maximized else 1.0 - share

    def widened(self, values: Sequence[float]) -> Self:
        """Return an objective whose range reaches the best of the values."""
        low, high = self.range
        ends = (low, max([high, *values])) if self.maximized else (min([low, *values]), high)
        return self.model_copy(update={"range": ends})

    def beats(self, value: float, other: float) -> bool:
        return value > other if self.maximized else value < other

    def verdict(self, value: float, seed: float) -> str:
        """Return whether a reward is ``better`` or ``worse`` than the seed's, or ``equal``; empty for a record."""
        if not self.aim:
            return ""
        if value == seed:
            return "equal"
        return "better" if self.beats(value, seed) else "worse"
