"""Reward vectors: normalise raw rewards so that they can be compared without averaging.

Rewards are stored as the evaluator returned them, float64 in declared order. ``RewardSpace.normalise`` maps them to the
vectors that the search compares: one column per objective of role ``objective``, higher is better, with 0 and 1 at the
ends of the declared range.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from speciate.domain.arrays import BoolArray, FloatArray, IntArray, np
from speciate.domain.objective import Objective, ObjectiveRole

# Penalty of infeasible vectors, in ranges: large enough for feasible rewards far below a range that was declared too
# narrow, and small enough that float64 still resolves different violations.
_BELOW = 1000.0

# Most by which rewards separate infeasible vectors: they decide between equal violations only, and float64 resolves the
# difference beside the penalty.
_TIE = 1e-6

# Bits of a reward that candidates are compared by.
_COMPARED_BITS = 40

# Points compared with all others before the front is searched, and points of one search.
_STRONG = 64
_POOL = 8192


class InvalidRewardsError(ValueError):
    """An evaluator returned something other than a reward vector; the message says what was expected."""


@dataclass(frozen=True)
class RewardSpace:
    """The declared objectives of a problem as a vector space."""

    objectives: tuple[Objective, ...]
    """All d declared objectives, in order."""

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(objective.name for objective in self.objectives)

    @cached_property
    def widths(self) -> tuple[float, ...]:
        return tuple(objective.range[1] - objective.range[0] for objective in self.objectives)

    @cached_property
    def selected(self) -> tuple[Objective, ...]:
        """The k objectives that the search improves."""
        return tuple(o for o in self.objectives if o.role is ObjectiveRole.OBJECTIVE)

    def weight_vector(self, weights: Mapping[str, float] | None) -> tuple[float, ...] | None:
        """Return declared weights by name as a vector over the k selected objectives that sums to 1; None for None."""
        if weights is None:
            return None
        total = sum(weights.values())
        return tuple(weights.get(o.name, 0.0) / total for o in self.selected)

    def vector(self, rewards: Mapping[str, object]) -> tuple[float, ...]:
        """Return the named rewards as a vector of shape (d,) in declared order, in the author's units.

        Raises:
            InvalidRewardsError: A name is missing or unknown, or a value is not a finite number.
        """
        missing = [name for name in self.names if name not in rewards]
        unknown = [name for name in rewards if name not in self.names]
        if missing or unknown:
            wrong = [
                f"{what} {', '.join(names)}" for what, names in (("missing", missing), ("unknown", unknown)) if names
            ]
            raise InvalidRewardsError(f"rewards: {'; '.join(wrong)}; expected exactly {', '.join(self.names)}")
        return tuple(_finite(name, rewards[name]) for name in self.names)

    @cached_property
    def records(self) -> list[str]:
        return [o.name for o in self.objectives if o.role is ObjectiveRole.RECORD]

    def unmeasured(self, rewards: Mapping[str, object]) -> list[str]:
        """Return the names of records without a finite number; a record decides nothing, so that loses no candidate."""
        return [name for name in self.records if not _is_finite(rewards.get(name))]

    def measured(self, rewards: Mapping[str, object]) -> tuple[tuple[float, ...], list[str]]:
        """As ``vector``, with the worst end of its range for each record without a number, and the names of these."""
        unmeasured = self.unmeasured(rewards)
        worst = {o.name: o.worst for o in self.objectives if o.name in unmeasured}
        return self.vector({**rewards, **worst}), unmeasured

    def widened(self, rewards: FloatArray) -> "RewardSpace":
        """Return the space with every estimated range widened to the best of raw rewards, shape (n, d).

        The result depends on the rewards alone, so that a replay, which has the same archive, compares alike.
        """
        if not len(rewards) or not any(objective.estimated for objective in self.objectives):
            return self
        columns = zip(self.objectives, rewards.T.tolist(), strict=True)
        return RewardSpace(tuple(o.widened(values) if o.estimated else o for o, values in columns))

    def gains(self, rewards: Sequence[float], other: Sequence[float]) -> list[str]:
        """Return the names of the selected objectives of which a raw vector has a better value than another."""
        values = zip(self.objectives, *rounded([rewards, other]).tolist(), strict=True)
        return [o.name for o, own, old in values if o.role is ObjectiveRole.OBJECTIVE and o.beats(own, old)]

    def normalise(self, rewards: Sequence[Sequence[float]] | FloatArray) -> FloatArray:
        """Return the vectors that the search compares, shape (n, k), of raw rewards, shape (n, d); higher is better.

        Infeasible vectors are shifted below every feasible one (whose rewards lie less than a thousand ranges below the
        worst end), further for a larger violation: constraint domination (Deb et al. 2002, section VI) as a shift that
        keeps the result a plain vector. Rewards of infeasible candidates may have any size: they are squashed to a
        millionth, so that they decide between equal violations only.
        """
        raw = np.asarray(rewards, dtype=np.float64).reshape(-1, len(self.objectives))
        compared = rounded(raw)
        columns = [
            objective.share(compared[:, j])
            for j, objective in enumerate(self.objectives)
            if objective.role is ObjectiveRole.OBJECTIVE
        ]
        values = np.stack(columns, axis=1) if columns else np.zeros((len(raw), 0))
        violation = self.violation(raw)[:, None]
        bounded = np.clip(values, -_BELOW, 1.0)
        return np.where(violation > 0, _TIE * bounded / (1.0 + np.abs(bounded)) - _BELOW - violation, values)

    def violation(self, rewards: Sequence[Sequence[float]] | FloatArray) -> FloatArray:
        """Return the total constraint violation of raw rewards, shape (n, d), in units of the constraints' ranges.

        The shape is (n,); feasible vectors have 0.
        """
        raw = np.asarray(rewards, dtype=np.float64).reshape(-1, len(self.objectives))
        total = np.zeros(len(raw))
        for j, objective in enumerate(self.objectives):
            if objective.role is ObjectiveRole.CONSTRAINT:
                low, high = objective.range
                sign = -1.0 if objective.maximized else 1.0
                total += np.maximum(0.0, sign * (raw[:, j] - objective.limit)) / (high - low)
        return total


def rounded(rewards: Sequence[Sequence[float]] | Sequence[float] | FloatArray) -> FloatArray:
    """Return rewards without their last bits, 1e-12 of each: everything that ranks or compares candidates uses these.

    Whether a target or a constraint holds is decided by the exact rewards.
    """
    mantissas, exponents = np.frexp(rewards)
    compared: FloatArray = np.ldexp(np.rint(np.ldexp(mantissas, _COMPARED_BITS)), exponents - _COMPARED_BITS)
    return compared


def pareto_front(points: FloatArray) -> BoolArray:
    """Return the mask of the nondominated points, shape (n,), of points of shape (n, k), where higher is better.

    Equal points are all in it.
    """
    n = len(points)
    front = np.ones(n, dtype=np.bool_)
    # Points with a large sum dominate most others, so visiting them first saves comparisons.
    for i in np.argsort(-points.sum(axis=1), kind="stable"):
        if front[i]:
            front &= ~(np.all(points <= points[i], axis=1) & np.any(points < points[i], axis=1))
    return front


def large_front(points: FloatArray) -> IntArray:
    """Return the rows of the distinct nondominated points, ascending; of equal points the first.

    For 1e5 and more points, of which few are on the front: a few strong points drop nearly all of them first.

    ``points`` have shape (n, k), higher is better.
    """
    rows = np.arange(len(points))
    for strong in points[np.argsort(-points.sum(axis=1), kind="stable")[:_STRONG]]:
        inside = points[rows]
        rows = rows[~np.all(inside <= strong, axis=1) | np.all(inside == strong, axis=1)]
    rows = rows[np.unique(points[rows], axis=0, return_index=True)[1]]
    # The union of the fronts of parts contains the front of the whole.
    while len(rows) > _POOL:
        parts = (rows[at : at + _POOL] for at in range(0, len(rows), _POOL))
        front = np.concatenate([part[pareto_front(points[part])] for part in parts])
        if len(front) == len(rows):
            break
        rows = front
    return np.sort(rows[pareto_front(points[rows])])


def extended_front(front: FloatArray, more: FloatArray) -> IntArray:
    """Return the rows of ``large_front`` of a front, shape (m, k), followed by further points, shape (n, k).

    For n far below m it takes a small part of the time.
    """
    fresh = large_front(more)
    fresh = fresh[[not np.all(front >= point, axis=1).any() for point in more[fresh]]]
    kept = np.ones(len(front), dtype=np.bool_)
    for point in more[fresh]:
        kept &= ~np.all(front <= point, axis=1)
    return np.concatenate([np.flatnonzero(kept), len(front) + fresh])


def _finite(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        kind = "null" if value is None else type(value).__name__
        raise InvalidRewardsError(f"reward {name!r} is {kind}: expected a finite number")
    if not _is_finite(value):
        text = value if isinstance(value, float) else "a whole number beyond 1.8e308"
        raise InvalidRewardsError(f"reward {name!r} is {text}: expected a finite number")
    return float(value)


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
