"""Reference implementations that the report's numbers are compared with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.arrays import FloatArray
from speciate.domain.errors import InvalidInputError
from speciate.tournaments.statistics.bootstrap import all_equal, percentiles


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its percentile interval.

    Attributes:
        estimate: The statistic of the data.
        low: Lower end.
        high: Upper end.
        level: Nominal coverage, such as 0.95.
        clusters: Problems that were resampled.
    """

    estimate: float
    low: float
    high: float
    level: float
    clusters: int


def clustered_interval(
    values: ArrayLike,
    rng: np.random.Generator,
    statistic: Callable[[FloatArray], float] | None = None,
    level: float = 0.95,
    draws: int = 2000,
) -> Interval:
    """Return the percentile bootstrap interval of a statistic over problems.

    Source: Efron and Tibshirani 1993, section 13.3; resampling of clusters: Field and Welsh 2007.

    Args:
        values: Shape (n_problems, ...): all values of a problem are resampled together.
        rng: Draws the problems, with replacement.
        statistic: Maps an array like ``values`` to a number, which may be infinite (an ERT). None is the mean over
            problems of the mean within each problem.
        level: Coverage of the interval, two-sided.
        draws: Resamples.

    Raises:
        InvalidInputError: All problems are equal.
    """
    data = np.asarray(values, dtype=np.float64)
    if all_equal(data):
        raise InvalidInputError(
            "All problems have the same values, so the interval would have zero width.",
            remedy="Report the value alone, or compare on problems that differ.",
        )
    statistics: FloatArray
    if statistic is None:
        means = data.reshape(len(data), -1).mean(axis=1) if data.ndim else data
        statistics, estimate = means[rng.integers(0, len(means), (draws, len(means)))].mean(axis=1), float(means.mean())
    else:
        rows = rng.integers(0, len(data), (draws, len(data)))
        statistics, estimate = np.array([statistic(data[row]) for row in rows]), float(statistic(data))
    low, high = percentiles(statistics, level)
    return Interval(estimate, float(low), float(high), level, len(data))


@dataclass(frozen=True, slots=True)
class RunningTime:
    """Expected running time of restarting until the target is reached.

    Attributes:
        expected: Cost per success, in the unit of ``spent``; infinite without success.
        spent: Total cost of all runs, failed ones included.
        successes: Runs that reached the target.
        runs: All runs.
    """

    expected: float
    spent: float
    successes: int
    runs: int


def expected_running_time(spent: ArrayLike, reached: ArrayLike) -> RunningTime:
    """Return ERT: the total cost of all runs divided by the number of successes.

    Source: Auger and Hansen 2005 (success performance); Hansen et al. 2021, arXiv 1603.08785, section 4.

    Args:
        spent: Any shape: evaluations (or tokens, or seconds) until the target was reached, or until the run ended.
        reached: The same shape: True for runs that reached the target.
    """
    costs, success = np.asarray(spent, dtype=np.float64), np.asarray(reached, dtype=np.bool_)
    total, successes = math.fsum(costs.ravel()), int(success.sum())
    return RunningTime(total / successes if successes else math.inf, total, successes, success.size)
