"""Report sections beyond the standings: hypervolume, diversity, health of the policies and entropy laws."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from speciate.domain.arrays import BoolArray, FloatArray
from speciate.domain.errors import InvalidInputError
from speciate.domain.tournament import Schedule
from speciate.tournaments.report.measures import EntropyFit, Estimate, PolicyHealth, Quality
from speciate.tournaments.report.models import PolicyFacts
from speciate.tournaments.report.resamples import Resamples
from speciate.tournaments.report.results import Results
from speciate.tournaments.report.run_summary import POLICY_NUMBERS
from speciate.tournaments.statistics.entropy_law import fit_entropy_law

_MIN_CHECKPOINTS: Final = 3
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
    """Return the mean over problems of the mean over completed runs that have a number."""
    measured = np.where(ended, values, np.nan)
    some = np.isfinite(measured).any(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        means = np.nanmean(measured[some], axis=1)
    return resamples.mean(means, int(np.isfinite(measured).sum()), empty)


def entropy_fits(health: Sequence[PolicyHealth], policies: Mapping[str, PolicyFacts]) -> tuple[EntropyFit, ...]:
    """Return the entropy law of every training that has a checkpoint in the tournament.

    With three or more checkpoints the law is fitted to the tournament's own measurements, else to the training curve in
    the manifest. A policy of several entrants is measured in the first one.
    """
    measured: dict[str, PolicyHealth] = {}
    for each in health:
        measured.setdefault(each.policy, each)
    trainings: dict[str, list[str]] = {}
    for name, facts in policies.items():
        if facts.training is not None:
            trainings.setdefault(facts.training.digest, []).append(name)
    fits = (
        _fit(digest, sorted(names, key=lambda name: (_step(policies[name]), name)), measured, policies)
        for digest, names in trainings.items()
    )
    return tuple(fit for fit in fits if fit.entropy)


def _step(facts: PolicyFacts) -> int:
    return 0 if facts.training is None else facts.training.step


def _fit(
    digest: str, names: list[str], measured: Mapping[str, PolicyHealth], policies: Mapping[str, PolicyFacts]
) -> EntropyFit:
    points = _measured_points(measured[name] for name in names if name in measured)
    source = "checkpoints"
    last = policies[names[-1]].training
    if len(points) < _MIN_CHECKPOINTS and last is not None:
        source, points = "manifest", list(zip(last.entropy, last.reward, strict=False))
    entropy, reward = tuple(h for h, _ in points), tuple(r for _, r in points)
    fit = EntropyFit(training=digest, policies=tuple(names), source=source, entropy=entropy, reward=reward)
    try:
        return fit.model_copy(update=fit_entropy_law(entropy, reward))
    except InvalidInputError as error:
        return fit.model_copy(update={"note": str(error)})


def _measured_points(health: Iterable[PolicyHealth]) -> list[tuple[float, float]]:
    points = ((each.entropy.value, each.reward.value) for each in health)
    return [(entropy, reward) for entropy, reward in points if entropy is not None and reward is not None]
