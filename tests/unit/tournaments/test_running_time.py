"""Expected running time and its distribution, with runs that end before the target."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from speciate.tournaments.report.curves import reached_curve
from speciate.tournaments.report.measures import Reached
from tests.unit.tournaments.oracles import RunningTime, expected_running_time

RUNS = st.lists(st.tuples(st.integers(0, 50), st.booleans()), min_size=1, max_size=30)


def curve_of(spent: ArrayLike, reached: ArrayLike) -> Reached:
    return reached_curve("a", "evaluations", np.asarray(spent, dtype=np.float64), np.asarray(reached, dtype=np.bool_))


def test_failed_runs_add_to_the_cost() -> None:
    assert expected_running_time([10, 30, 100], [True, True, False]) == RunningTime(70.0, 140.0, 2, 3)
    assert expected_running_time([100, 100], [False, False]).expected == math.inf


def test_it_is_the_expectation_of_restarting() -> None:
    # Each evaluation succeeds with p = 0.01, runs end after 50: restarting needs 1/p = 100 whatever the end.
    rng = np.random.default_rng(0)
    needed = rng.geometric(0.01, 40_000)
    assert expected_running_time(np.minimum(needed, 50), needed <= 50).expected == pytest.approx(100, rel=0.02)


def test_the_curve_steps_where_targets_were_reached() -> None:
    curve = curve_of([5, 5, 9, 20, 7, 20], [1, 1, 1, 0, 0, 0])
    assert curve.spent == (5.0, 9.0)
    assert curve.share == (2 / 6, 3 / 6)
    assert (curve.censored, curve.sound_until, curve.pairs) == (3, 7.0, 6)


def test_a_curve_of_nothing_reached_is_flat() -> None:
    assert curve_of([3, 4], [False, False]).spent == ()
    assert curve_of([3, 4], [True, True]).sound_until is None


@given(RUNS, st.integers(0, 60))
def test_the_curve_counts(runs: list[tuple[int, bool]], limit: int) -> None:
    spent, reached = zip(*runs, strict=True)
    curve = curve_of(spent, reached)
    share = max((y for x, y in zip(curve.spent, curve.share, strict=True) if x <= limit), default=0.0)
    assert share == pytest.approx(sum(r and s <= limit for s, r in runs) / len(runs))
