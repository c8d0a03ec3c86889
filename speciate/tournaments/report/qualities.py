"""What a report says beside who won: performance profiles, hypervolume, diversity, and the health of the policies."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from speciate.domain.errors import InvalidInputError
from speciate.domain.tournament import Schedule
from speciate.tournaments.report.measures import EntropyFit, Estimate, PolicyHealth, Profile, Quality
from speciate.tournaments.report.models import PolicyFacts
from speciate.tournaments.report.resamples import Resamples
from speciate.tournaments.report.results import Results
from speciate.tournaments.report.run_summary import VOICE
from speciate.tournaments.statistics.arrays import FloatArray
from speciate.tournaments.statistics.entropy_law import fit_entropy_law
from speciate.tournaments.statistics.running_time import performance_profile

_FACTORS: Final = tuple(np.round(np.geomspace(1, 64, 37), 4).tolist())
_WITHOUT: Final = {
    "entropy": "log-probabilities are not known: the policy is registered without sampling.logprobs",
    "within": "no completion holds two scored answers",
    "across": "no run has two completions with scored answers",
}


def profiles(schedule: Schedule, results: Results) -> tuple[Profile, ...]:
    """Return the performance profiles of ERT in evaluations, over problems that have runs of all entrants."""
    some = np.asarray(results.ended.any(axis=1)).all(axis=1)
    if not some.any():
        return ()
    ended = results.ended[some]
    spent = (results.evaluations[some] * ended).sum(axis=1)
    successes = (results.reached[some] & ended).sum(axis=1)
    costs = np.divide(np.maximum(spent, 1.0), successes, out=np.full_like(spent, np.inf), where=successes > 0)
    shares = performance_profile(costs, _FACTORS)
    return tuple(
        Profile(entrant=entrant.name, factors=_FACTORS, share=tuple(share.tolist()), problems=int(some.sum()))
        for entrant, share in zip(schedule.declared.entrants, shares, strict=True)
    )


def qualities(schedule: Schedule, results: Results, resamples: Resamples) -> tuple[Quality, ...]:
    """Return hypervolume and reward-space diversity of every entrant."""
    found = []
    for i, entrant in enumerate(schedule.declared.entrants):
        ended = results.ended[..., i]

        def mean(values: FloatArray, ended: np.ndarray = ended, i: int = i) -> Estimate:
            return _mean(values[..., i], ended, resamples, "no run has two such candidates")

        found.append(
            Quality(
                entrant=entrant.name,
                hypervolume=mean(results.hypervolume),
                diversity=mean(results.diversity),
                diversity_all=mean(results.diversity_all),
            )
        )
    return tuple(found)


def health(schedule: Schedule, results: Results, resamples: Resamples) -> tuple[PolicyHealth, ...]:
    """Return how every policy of every entrant did."""
    found = []
    for i, entrant in enumerate(schedule.declared.entrants):
        ended = results.ended[..., i]
        for voice, policy in enumerate(entrant.asked):
            numbers = {name: results.voices[:, :, i, voice, j] for j, name in enumerate(VOICE)}
            counts = {name: int(np.nansum(numbers.pop(name)[ended])) for name in ("rollouts", "answers")}
            means = {
                name: _mean(values, ended, resamples, _WITHOUT.get(name, "it was not asked"))
                for name, values in numbers.items()
            }
            found.append(PolicyHealth.model_validate({"entrant": entrant.name, "policy": policy, **counts, **means}))
    return tuple(found)


def _mean(values: FloatArray, ended: np.ndarray, resamples: Resamples, nothing: str) -> Estimate:
    """Return the mean over problems of the mean over runs that completed and have a number."""
    known = np.where(ended, values, np.nan)
    some = np.isfinite(known).any(axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        means = np.nanmean(known[some], axis=1)
    return resamples.mean(means, int(np.isfinite(known).sum()), nothing)


def entropy_fits(found: Sequence[PolicyHealth], policies: Mapping[str, PolicyFacts]) -> tuple[EntropyFit, ...]:
    """Return the entropy law of every training of which the tournament has a checkpoint.

    With three checkpoints or more it is fitted to what the tournament measured of them, else to the schedule that the
    training wrote down. A policy that takes part in several entrants is taken from the first one.
    """
    measured: dict[str, PolicyHealth] = {}
    for each in found:
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
    points = [
        (mine.entropy.value, mine.reward.value)
        for mine in (measured[name] for name in names if name in measured)
        if mine.entropy.value is not None and mine.reward.value is not None
    ]
    source = "checkpoints"
    last = policies[names[-1]].training
    if len(points) < 3 and last is not None:
        source, points = "manifest", list(zip(last.entropy, last.reward, strict=False))
    entropy, reward = tuple(h for h, _ in points), tuple(r for _, r in points)
    made = EntropyFit(training=digest, policies=tuple(names), source=source, entropy=entropy, reward=reward)
    try:
        law = fit_entropy_law(entropy, reward)
    except InvalidInputError as error:
        return made.model_copy(update={"note": str(error)})
    fitted = {"a": law.a, "b": law.b, "ceiling": law.ceiling, "r_squared": law.r_squared}
    return made.model_copy(update={**fitted, "r_squared_line": law.r_squared_line})
