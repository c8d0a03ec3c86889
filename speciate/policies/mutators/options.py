"""Options of the policy kind ``program_mutator``."""

from typing import Self

from pydantic import Field, model_validator

from speciate.domain.values import Value
from speciate.policies.mutators.numbers import Sigmas


class ProgramMutatorOptions(Value):
    """Options of ``program_mutator``; rates are relative to each other."""

    constants: float = Field(default=1.0, ge=0, le=1000)
    """Rate of changed numeric constants; it also grows with their number."""
    operators: float = Field(default=0.4, ge=0, le=1000)
    """Rate of replaced operators and comparisons."""
    expressions: float = Field(default=0.8, ge=0, le=1000)
    """Rate of replaced expressions."""
    statements: float = Field(default=0.4, ge=0, le=1000)
    """Rate of deleted, repeated and swapped statements."""
    elements: float = Field(default=0.3, ge=0, le=1000)
    """Rate of deleted, repeated, swapped and moved elements of lists."""
    crossover: float = Field(default=0.3, ge=0, le=1)
    """Probability of recombining two parents if there are two."""
    sigma_low: float = Field(default=3e-4, gt=0, le=10)
    """Smallest step of a float, as a share of its value or of the typical value."""
    sigma_high: float = Field(default=0.5, gt=0, le=10)
    """Largest step of a float, likewise."""
    second_edit: float = Field(default=0.15, ge=0, le=0.9)
    """Probability of each further edit of a child."""
    proposal_edits: int = Field(default=4, ge=1, le=100)
    """Edits of a program that is made from the seed program."""

    @model_validator(mode="after")
    def _steps_are_ordered(self) -> Self:
        if self.sigma_low > self.sigma_high:
            raise ValueError(f"sigma_low is {self.sigma_low}: expected at most sigma_high, {self.sigma_high}")
        return self

    def sigmas(self, *, heavy: bool) -> Sigmas:
        """Return the step sizes; ``heavy`` takes large steps only, for programs that are made from the seed program."""
        return max(self.sigma_low, self.sigma_high / 10) if heavy else self.sigma_low, self.sigma_high
