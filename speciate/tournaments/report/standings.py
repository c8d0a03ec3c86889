"""Standings: each entrant's solve rate, pass@k, best@k and expected running time."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from speciate.domain.arrays import FloatArray
from speciate.domain.tournament import Schedule
from speciate.tournaments.report.measures import Draws, Estimate
from speciate.tournaments.report.models import Standing
from speciate.tournaments.report.resamples import Resamples
from speciate.tournaments.report.results import MISSING, Results
from speciate.tournaments.statistics.estimators import best_at_k, pass_at_k

_INCOMPLETE: Final = "no problem has all its runs completed"


def standings(schedule: Schedule, results: Results, resamples: Resamples) -> tuple[Standing, ...]:
    return tuple(_standing(schedule, results, i, resamples) for i in range(len(schedule.declared.entrants)))


def draws(schedule: Schedule, results: Results, resamples: Resamples) -> tuple[Draws, ...]:
    ks = _sizes(len(schedule.seeds))
    curves = []
    for i, entrant in enumerate(schedule.declared.entrants):
        successes, scores = _complete(results, i)
        passed = _pass(successes, scores.shape[1], ks)
        best = best_at_k(scores, ks) if len(scores) else np.zeros((0, len(ks)))
        pass_at = tuple(resamples.mean(column, scores.size, _INCOMPLETE) for column in passed.T)
        best_at = tuple(resamples.mean(column, scores.size, _INCOMPLETE) for column in best.T)
        curves.append(Draws(entrant=entrant.name, k=tuple(ks), pass_at=pass_at, best_at=best_at))
    return tuple(curves)


def _sizes(seeds: int, most: int = 16) -> list[int]:
    if seeds <= most:
        return [*range(1, seeds + 1)]
    return [int(k) for k in np.unique(np.geomspace(1, seeds, most).round())]


def _complete(results: Results, i: int) -> tuple[NDArray[np.int64], FloatArray]:
    complete = results.ended[..., i].all(axis=1)
    return results.reached[complete][..., i].sum(axis=1), results.score[complete][..., i]


def _pass(successes: NDArray[np.int64], n: int, ks: Sequence[int]) -> FloatArray:
    if not len(successes):
        return np.zeros((0, len(ks)))
    return pass_at_k(n, successes[:, None], np.asarray(ks, dtype=np.float64))


def _standing(schedule: Schedule, results: Results, i: int, resamples: Resamples) -> Standing:
    entrant = schedule.declared.entrants[i]
    ended, reached = results.ended[..., i], results.reached[..., i] & results.ended[..., i]
    some = ended.any(axis=1)  # problems with a completed run
    runs, k = int(ended.sum()), ended.shape[1]
    successes, scores = _complete(results, i)
    areas = results.best_by[ended.all(axis=1), :, i].mean(axis=(1, 2))
    passed = _pass(successes, k, [k])[:, 0]
    best = best_at_k(scores, [1, k]) if len(scores) else np.zeros((0, 2))
    proposer, mutator = entrant.role_labels()

    def ert(spent: FloatArray) -> Estimate:
        sums = (spent[..., i] * ended)[some].sum(axis=1)
        return resamples.ratio(sums, reached[some].sum(axis=1), runs, "infinite: no run reached the target")

    return Standing(
        entrant=entrant.name,
        policy=proposer,
        mutator=mutator,
        strategy=entrant.searched_by,
        ended=runs,
        missing=int((results.state[..., i] == MISSING).sum()),
        unlocked=int(reached.any(axis=1).sum()),
        pass_1=resamples.mean(reached[some].sum(axis=1) / ended[some].sum(axis=1), runs),
        pass_k=resamples.mean(passed, scores.size, _INCOMPLETE),
        best_1=resamples.mean(best[:, 0], scores.size, _INCOMPLETE),
        best_k=resamples.mean(best[:, 1], scores.size, _INCOMPLETE),
        area=resamples.mean(areas, scores.size, _INCOMPLETE),
        ert=ert(results.evaluations),
        ert_tokens=ert(results.tokens),
    )
