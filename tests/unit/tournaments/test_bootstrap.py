"""Coverage of the bootstrap over problems, and the minimum of thirty problems."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.unit.tournaments.oracles import clustered_interval, expected_running_time


def coverage(problems: int, times: int = 600) -> float:
    """Return the coverage of the true mean 0 for problems with individual effects."""
    rng = np.random.default_rng(problems)
    held = 0
    for _ in range(times):
        values = rng.normal(size=(problems, 1)) + 0.3 * rng.normal(size=(problems, 4))
        seen = clustered_interval(values, rng, draws=400)
        held += seen.low <= 0.0 <= seen.high
    return held / times


def test_forty_problems_have_nominal_coverage() -> None:
    assert 0.92 <= coverage(40) <= 0.97


def test_twelve_problems_do_not() -> None:
    assert coverage(12) <= 0.925


def test_samples_of_a_problem_stay_together() -> None:
    # Twenty copies of each problem's value add no information: the interval equals that of the problems.
    values = np.random.default_rng(0).normal(size=40)
    alone = clustered_interval(values, np.random.default_rng(1))
    copied = clustered_interval(np.repeat(values[:, None], 20, axis=1), np.random.default_rng(1))
    assert (copied.low, copied.high) == pytest.approx((alone.low, alone.high))
    assert alone.clusters == 40
    assert alone.estimate == pytest.approx(values.mean())
    assert alone.low < alone.estimate < alone.high


def test_a_statistic_may_be_infinite() -> None:
    rng = np.random.default_rng(2)
    runs = np.stack([rng.integers(1, 100, 40), np.arange(40) == 0], axis=1)  # one success in forty
    seen = clustered_interval(runs, rng, lambda rows: expected_running_time(rows[:, 0], rows[:, 1]).expected)
    assert seen.estimate == runs[:, 0].sum()
    assert seen.high == math.inf
    mean = clustered_interval(runs[:, 0], np.random.default_rng(3))
    own = clustered_interval(runs[:, 0], np.random.default_rng(3), lambda rows: float(rows.mean()))
    assert (own.low, own.high) == pytest.approx((mean.low, mean.high))
