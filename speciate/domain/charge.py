"""What requests to a policy cost; apart from budgets, whose validation takes time to import."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Charge:
    tokens: int = 0
    cost: float = 0.0
    """US dollars."""
    estimated: int = 0
    """Those of the tokens that the endpoint did not report."""

    def __add__(self, other: "Charge") -> "Charge":
        return Charge(self.tokens + other.tokens, self.cost + other.cost, self.estimated + other.estimated)
