"""The result of a run as lists show it: the rewards of its best candidate beside those of the seed program."""

from uuid import UUID

from speciate.domain.numbers import short_number
from speciate.schema.base import Record


class ComparedReward(Record):
    """A reward of the best candidate beside that of the seed program."""

    objective: str
    value: float
    """In the author's units."""
    seed: float | None = None
    """Reward of the seed program; None if it has none."""
    margin: float | None = None
    """Half the width of the 95 % interval of a noisy reward, from evaluations after the end; None without them."""
    verdict: str = ""
    """``better``, ``worse`` or ``equal`` beside the seed program; empty without one, and for records."""

    @property
    def known_value(self) -> str:
        """The value, with ``±`` and half the width of its interval if it is known."""
        if not self.margin:
            return short_number(self.value)
        return f"{short_number(self.value)} ± {short_number(self.margin, 2)}"

    @property
    def change(self) -> str:
        """The difference to the seed program with its verdict, such as ``0.182 better``; empty without one."""
        if self.seed is None or self.verdict not in {"better", "worse"}:
            return self.verdict and "as the seed"
        return f"{short_number(abs(self.value - self.seed), 3)} {self.verdict}"

    def __str__(self) -> str:
        seed = "" if self.seed is None or self.verdict == "equal" else f"seed {short_number(self.seed)}, "
        change = f" ({seed}{self.change})" if self.change else ""
        return f"{self.objective} {self.known_value}{change}"


class RunResult(Record):
    """The best candidate of a run."""

    run_id: UUID
    problem: str
    """Problem version, as ``slug@version``."""
    number: int
    """Number of the candidate in the run."""
    rewards: tuple[ComparedReward, ...]
