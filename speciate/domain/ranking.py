"""Rank candidates of a problem: the one definition of "best".

Feasible candidates rank above infeasible ones, and those by their violation. Among feasible candidates those that meet
the unlock target come first, then the number of targets met decides, then the hardest target (targets are declared from
easy to hard), then the objectives: the declared weights, the only objective, or else nearness to the next unmet target,
and then to the best ends of all ranges. Of equals the earlier one is better.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

from speciate.domain.arrays import FloatArray, IntArray, np
from speciate.domain.candidate import Repeat
from speciate.domain.numbers import short_number
from speciate.domain.objective import ObjectiveRole
from speciate.domain.reward import RewardSpace, rounded
from speciate.domain.rule import Rule, Shortfall, parse_rule
from speciate.domain.target import Target, TargetSet

_LEAN: Final = 1e-3
"""Weight of the sum beside a maximum, so that a dominated vector never equals the one that dominates it."""


class Merit(NamedTuple):
    """Rank of a candidate among those of its problem; a larger tuple is better."""

    feasibility: float
    """0 if all constraints hold, else minus the violation in ranges."""
    unlocks: int
    """1 if it meets the unlock target, else 0."""
    targets: int
    """Number of targets met."""
    hardest: TargetSet
    """Those targets; a later one is harder, so the higher number ranks first."""
    value: float
    """The declared weighted sum, the only objective (normalised), or minus the distance to the next unmet target in
    ranges."""
    balance: float
    """Minus the largest distance of an objective from the best end of its range, in ranges."""


@dataclass(frozen=True)
class Ranking:
    """The part of a problem that ranks its candidates."""

    space: RewardSpace
    targets: tuple[Target, ...]
    """The targets, from easy to hard."""
    weights: tuple[float, ...] | None
    """Declared weights over the k selected objectives, summing to 1, or None."""

    @cached_property
    def _unlock(self) -> int:
        return next(i for i, target in enumerate(self.targets) if target.unlock)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The rules of the targets, in the order of ``targets``."""
        return tuple(parse_rule(target.rule, self.space.names) for target in self.targets)

    def standing(self, met: TargetSet) -> tuple[bool, int]:
        """Return whether the unlock target is among some targets, and their number."""
        return bool(met >> self._unlock & 1), met.bit_count()

    def missing(self, target: int, rewards: Sequence[float]) -> tuple[Shortfall, ...]:
        """Return what a raw reward vector of shape (d,) lacks for a target; empty if its rule holds."""
        return self.rules[target].shortfalls(rewards, self.space.widths)

    def violations(self, rewards: Sequence[float]) -> tuple[Shortfall, ...]:
        """Return the constraints that a raw reward vector of shape (d,) violates; empty for a feasible candidate."""
        violations = []
        for objective, value, width in zip(self.space.objectives, rewards, self.space.widths, strict=True):
            if objective.role is ObjectiveRole.CONSTRAINT and objective.beats(objective.limit, value):
                share = abs(value - objective.limit) / width
                violations.append(Shortfall(objective.name, value, objective.bound, objective.limit, share))
        return tuple(violations)

    def refutation(
        self, target: int, rewards: Sequence[float], repeats: Sequence[Repeat], hidden: Iterable[str] = ()
    ) -> str:
        """Return, as text, what the evaluations of a refuted candidate measured.

        ``rewards`` are those of the first evaluation; the values of ``hidden`` objectives are left out.
        """
        vectors = [repeat for repeat in repeats if not isinstance(repeat, str)]
        missed = {each.name for vector in vectors for each in self._lacks(target, vector)} - set(hidden)
        places = [(i, name) for i, name in enumerate(self.space.names) if name in missed]

        def text(measured: Repeat, digits: int) -> str:
            if isinstance(measured, str):
                return measured
            values = [(name, short_number(measured[i], digits)) for i, name in places]
            if not values:
                return "missed it" if self._lacks(target, measured) else "met it"
            return values[0][1] if len(values) == 1 else " and ".join(f"{name} {value}" for name, value in values)

        for digits in (4, 6, 9):  # until they differ
            first, *others = [text(measured, digits) for measured in (tuple(rewards), *repeats)]
            if first not in others:
                break
        return f"first evaluation {first}, repeat{'s' * (len(others) > 1)} {'; '.join(others)}: not confirmed"

    def _lacks(self, target: int, rewards: Sequence[float]) -> tuple[Shortfall, ...]:
        return (*self.missing(target, rewards), *self.violations(rewards))

    def nearest(self, vectors: Sequence[Sequence[float]]) -> int:
        """Return the index of the raw reward vector nearest to the unlock target and the constraints; not empty."""
        missing = [self._lacks(self._unlock, rewards) for rewards in vectors]
        return min(range(len(vectors)), key=lambda i: sum(each.size for each in missing[i]))

    def merit(self, rewards: Sequence[float], met: TargetSet) -> Merit:
        """Return the rank of a candidate with raw rewards of shape (d,) that meets some targets."""
        return self.merits([rewards], [met])[0]

    def advantage(self, best: Merit, other: Merit) -> str:
        """Return why a candidate ranks before another, in words."""
        target = self._next_target(best.hardest)
        value = f"it is nearer to target {self.targets[target].name}" if target is not None else ""
        if self.weights is not None or len(self.space.selected) == 1:
            value = "its weighted sum is higher" if self.weights else f"its {self.space.selected[0].name} is better"
        reasons = (
            "it fulfils all constraints",
            "it meets the unlock target",
            f"it meets more targets ({best.targets}, not {other.targets})",
            f"it meets the harder target {self.targets[(best.hardest ^ other.hardest).bit_length() - 1].name}",
            value,
            "its objectives are nearer to the best ends of their ranges",
        )
        decisive = (reason for reason, a, b in zip(reasons, best, other, strict=True) if a != b)
        return next(decisive, "it was the first with these rewards")

    def merits(self, rewards: Sequence[Sequence[float]], met: Sequence[TargetSet]) -> list[Merit]:
        """Return the ranks of several candidates; the arguments of ``merit`` with a dimension of n before."""
        if not rewards:
            return []
        columns = self._merits(np.array(rewards, dtype=np.float64), np.array(met))
        return [Merit(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def _merits(self, rewards: FloatArray, met: IntArray) -> tuple[FloatArray | IntArray, ...]:
        """Return the fields of ``Merit`` as columns; each row depends on itself alone, to the last bit."""
        points = self.space.normalise(rewards)
        gaps = 1.0 - points
        if points.shape[1] == 1:  # points of a residual below 1e-16 of its range would be equal
            (only,) = self.space.selected
            value = rounded(rewards[:, self.space.objectives.index(only)]) * (1 if only.maximized else -1)
        elif self.weights is not None:
            value = (points * np.array(self.weights)).sum(axis=1)
        else:
            value = np.zeros(len(met))
            for mask in np.unique(met):
                if (target := self._next_target(int(mask))) is not None:
                    rows = met == mask
                    value[rows] = -self.rules[target].distances(rounded(rewards[rows]), self.space.widths)
        feasibility = -np.maximum(self.space.violation(rewards), 0.0)
        counts = np.array([int(mask).bit_count() for mask in met], dtype=np.int64)
        unlocks = met >> self._unlock & 1
        return feasibility, unlocks, counts, met, value, -gaps.max(axis=1, initial=-np.inf) - _LEAN * gaps.sum(axis=1)

    def _next_target(self, met: int) -> int | None:
        """Return the unlock target, or once it is met the first unmet target; None if all are met."""
        unmet = [i for i in range(len(self.targets)) if not met >> i & 1]
        return next((i for i in unmet if self.targets[i].unlock), unmet[0]) if unmet else None
