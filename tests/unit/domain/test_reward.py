"""Reward vectors: orientation, constraints, fronts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.reward import InvalidRewardsError, RewardSpace, pareto_front

SPACE = RewardSpace(
    (
        Objective(name="gain", range=(0.0, 10.0)),
        Objective(name="cost", direction=Direction.MINIMIZE, range=(0.0, 4.0)),
        Objective(name="overlap", direction=Direction.MINIMIZE, role=ObjectiveRole.CONSTRAINT, limit=0.0),
        Objective(name="ms", role=ObjectiveRole.RECORD),
    )
)


def test_normalised_rewards_are_higher_is_better_between_the_ends_of_the_range() -> None:
    points = SPACE.normalise([(0, 4, 0, 9), (10, 0, 0, 9), (5, 1, 0, 9)])
    assert points.tolist() == [[0.0, 0.0], [1.0, 1.0], [0.5, 0.75]]


def test_infeasible_vectors_rank_below_feasible_ones() -> None:
    bad, worse, poor = SPACE.normalise([(10, 0, 0.1, 0), (10, 0, 0.2, 0), (0, 4, 0, 0)])
    assert (bad < poor).all() or (bad <= poor).all()
    assert (worse < bad).all()


def test_a_violation_outweighs_values_beyond_a_range() -> None:
    extreme, infeasible, feasible = SPACE.normalise([(1e9, -1e9, 0.1, 0), (10, 0, 0.1, 0), (-500, 200, 0, 0)])
    assert extreme.tolist() == infeasible.tolist()
    assert (infeasible < feasible).all()


def test_infeasible_vectors_rank_by_violation_whatever_their_rewards() -> None:
    near, far = SPACE.normalise([(0, 4, 0.1, 0), (10, 0, 0.9, 0)])  # the worst rewards beside the best ones
    assert (near > far).all()
    low, lower = SPACE.normalise([(-1e300, 1e300, 0.1, 0), (10, 0, 0.11, 0)])
    assert (low > lower).all()


def test_rewards_decide_between_equal_violations() -> None:
    one, other, worse = SPACE.normalise([(5, 1, 0.1, 0), (4, 0, 0.1, 0), (-5e3, 1, 0.1, 0)])
    assert np.sign(one - other).tolist() == [1.0, -1.0]
    assert np.sign(one - worse).tolist() == [1.0, 0.0]


def test_feasible_vectors_are_not_clipped() -> None:
    assert SPACE.normalise([(20, -4, 0, 0)]).tolist() == [[2.0, 2.0]]


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ({"gain": 1}, "missing cost"),
        ({"gain": 1, "cost": 1, "overlap": 0, "ms": 1, "extra": 2}, "unknown extra"),
        ({"gain": float("nan"), "cost": 1, "overlap": 0, "ms": 1}, "'gain' is nan"),
        ({"gain": 10**400, "cost": 1, "overlap": 0, "ms": 1}, "'gain' is a whole number beyond"),
        ({"gain": "1", "cost": 1, "overlap": 0, "ms": 1}, "'gain' is str"),
        ({"gain": True, "cost": 1, "overlap": 0, "ms": 1}, "'gain' is bool"),
    ],
)
def test_invalid_vectors_are_refused(rewards: dict[str, object], expected: str) -> None:
    with pytest.raises(InvalidRewardsError, match=expected):
        SPACE.vector(rewards)


@given(hnp.arrays(np.float64, st.tuples(st.integers(1, 12), st.integers(1, 4)), elements=st.integers(0, 4).map(float)))
def test_the_front_holds_the_nondominated_points(points: np.ndarray) -> None:
    expected = [not any((q >= p).all() and (q > p).any() for q in points) for p in points]
    assert pareto_front(points).tolist() == expected


@pytest.mark.parametrize("value", [None, math.nan, -math.inf, 10**400, "3", True, [1]])
def test_a_record_without_a_number_takes_the_worst_end_of_its_range(value: object) -> None:
    rewards = {"gain": 1.0, "cost": 2.0, "overlap": 0.0, "ms": value}
    vector, unmeasured = SPACE.measured(rewards)
    assert (vector, unmeasured) == ((1.0, 2.0, 0.0, SPACE.objectives[3].worst), ["ms"])
    assert SPACE.objectives[3].directed == "ms"
    with pytest.raises(InvalidRewardsError, match="'gain'"):
        SPACE.measured({**rewards, "gain": value})
