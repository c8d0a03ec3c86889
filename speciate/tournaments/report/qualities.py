"""Report sections beyond the standings: hypervolume, diversity and health of the policies."""

import warnings
from typing import Final

import numpy as np

from speciate.domain.arrays import BoolArray, FloatArray
from speciate.domain.tournament import Schedule
from speciate.tournaments.report.measures import Estimate, PolicyHealth, Quality
from speciate.tournaments.report.resamples import Resamples
from speciate.tournaments.report.results import Results
from speciate.tournaments.report.run_summary import POLICY_NUMBERS

_UNKNOWN: Final = {
    "entropy": "log-probabilities are not known: the policy is registered without sampling.logprobs",
    "within": "no completion holds two scored answers",
    "across": "no run has two completions with scored answers",
}


def qualities(schedule: Schedule, results: Results, resamples: Resamples) -> tuple[Quality, ...]:
    names = ("hypervolume", "diversity", "diversity_all")
    qualities = []
    for i, entrant in enumerate(schedule.declared.entrants):
        means = {
            name: _mean(getattr(results, name)[..., i], results.ended[..., i], resamples, "no run has two candidates")
            for name in names
        }
        qualities.append(Quality.model_validate({"entrant": entrant.name, **means}))
    return tuple(qualities)


def health(schedule: Schedule, results: Results, resamples: Resamples) -> tuple[PolicyHealth, ...]:
    health = []
    for i, entrant in enumerate(schedule.declared.entrants):
        ended = results.ended[..., i]
        for position, policy in enumerate(entrant.policy_names):
            numbers = {name: results.by_policy[:, :, i, position, j] for j, name in enumerate(POLICY_NUMBERS)}
            counts = {name: int(np.nansum(numbers.pop(name)[ended])) for name in ("rollouts", "answers")}
            means = {
                name: _mean(values, ended, resamples, _UNKNOWN.get(name, "the policy received no request"))
                for name, values in numbers.items()
            }
            health.append(PolicyHealth.model_validate({"entrant": entrant.name, "policy": policy, **counts, **means}))
    return tuple(health)


def _mean(values: FloatArray, ended: BoolArray, resamples: Resamples, empty: str) -> Estimate:
    measured = np.where(ended, values, np.nan)
    some = np.isfinite(measured).any(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        means = np.nanmean(measured[some], axis=1)
    return resamples.mean(means, int(np.isfinite(measured).sum()), empty)
