"""How each entrant of a tournament stands by itself: solve rate, pass@k, best@k and expected running time."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from speciate.domain.tournament import Course
from speciate.tournaments.arrays import FloatArray
from speciate.tournaments.bootstrap import MIN_CLUSTERS, clustered_interval, percentiles, resampled
from speciate.tournaments.comparing import TOO_FEW, rng_for
from speciate.tournaments.estimators import best_at_k, pass_at_k
from speciate.tournaments.report import Estimate, Standing
from speciate.tournaments.results import MISSING, Results
from speciate.tournaments.running_time import expected_running_time

DRAWS: Final = 1000
LEVEL: Final = 0.95
_NOTHING = "no run has completed"


def standings(course: Course, results: Results) -> tuple[Standing, ...]:
    """Return every entrant in declared order."""
    return tuple(_standing(course, results, i) for i in range(len(course.declared.entrants)))


def interval(values: FloatArray, runs: int, rng: np.random.Generator) -> Estimate:
    """Return a mean over problems with its interval, or without it where problems are too few.

    Args:
        values: Shape (n_problems,).
        runs: Runs that they are of.
        rng: Draws the problems.
    """
    if len(values) == 0:
        return Estimate(value=None, problems=0, runs=runs, note=_NOTHING)
    if len(values) < MIN_CLUSTERS:
        return Estimate(value=float(values.mean()), problems=len(values), runs=runs, note=TOO_FEW)
    found = clustered_interval(values, rng, level=LEVEL, draws=DRAWS)
    return Estimate(value=found.estimate, low=found.low, high=found.high, level=LEVEL, problems=len(values), runs=runs)


def _standing(course: Course, results: Results, i: int) -> Standing:
    entrant = course.declared.entrants[i]
    ended, reached = results.ended[..., i], results.reached[..., i] & results.ended[..., i]
    some = ended.any(axis=1)  # problems with a run that completed
    counts, successes = ended[some].sum(axis=1), reached[some].sum(axis=1)
    runs, k = int(ended.sum()), ended.shape[1]
    whole = counts == k
    scores = results.score[some][whole][..., i]
    rates = pass_at_k(counts, successes, 1) if len(counts) else np.zeros(0)

    def draw(purpose: int) -> np.random.Generator:
        return rng_for(course, 10_000 + 10 * i + purpose)

    return Standing(
        entrant=entrant.name,
        policy=entrant.policy,
        mutator=entrant.mutator,
        strategy=entrant.strategy,
        ended=runs,
        missing=int((results.state[..., i] == MISSING).sum()),
        unlocked=int(reached.any(axis=1).sum()),
        pass_1=interval(rates, runs, draw(0)),
        pass_k=interval(_or_none(counts[whole], successes[whole], k), int(whole.sum()) * k, draw(1)),
        best_1=interval(_best(scores, 1), scores.size, draw(2)),
        best_k=interval(_best(scores, k), scores.size, draw(3)),
        ert=_ert(results.evaluations[some][..., i], ended[some], reached[some], draw(4)),
        ert_tokens=_ert(results.tokens[some][..., i], ended[some], reached[some], draw(5)),
    )


def _or_none(n: NDArray[np.int64], c: NDArray[np.int64], k: int) -> FloatArray:
    return pass_at_k(n, c, k) if len(n) else np.zeros(0)


def _best(scores: FloatArray, k: int) -> FloatArray:
    return best_at_k(scores, k) if len(scores) else np.zeros(0)


def _ert(spent: FloatArray, ended: NDArray[np.bool_], reached: NDArray[np.bool_], rng: np.random.Generator) -> Estimate:
    runs, problems = int(ended.sum()), len(ended)
    if runs == 0:
        return Estimate(value=None, problems=0, runs=0, note=_NOTHING)
    value = expected_running_time(spent[ended], reached[ended]).expected
    if not math.isfinite(value):
        return Estimate(value=None, problems=problems, runs=runs, note="infinite: no run reached the target")
    if problems < MIN_CLUSTERS:
        return Estimate(value=value, problems=problems, runs=runs, note=TOO_FEW)
    # Sums of each problem are all that a resample needs.
    rows = resampled(problems, DRAWS, rng)
    costs, successes = (spent * ended).sum(axis=1)[rows].sum(axis=1), reached.sum(axis=1)[rows].sum(axis=1)
    drawn = np.divide(costs, successes, out=np.full(DRAWS, math.inf), where=successes > 0)
    low, high = (float(end) for end in percentiles(drawn, LEVEL))
    note = "" if math.isfinite(high) else "the interval has no upper end"
    bounded = high if math.isfinite(high) else None
    return Estimate(value=value, low=low, high=bounded, level=LEVEL, problems=problems, runs=runs, note=note)
