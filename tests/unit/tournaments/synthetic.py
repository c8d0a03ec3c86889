"""Synthetic tournament results for report tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from speciate.domain.tournament import Entrant, Schedule, Tournament
from speciate.tournaments.report.build import make_report
from speciate.tournaments.report.models import Amendment, PolicyFacts, ProblemFacts, Report
from speciate.tournaments.report.results import ENDED, Results

BUDGET = 100


def schedule_of(problems: int, seeds: int, count: int, **changes: Any) -> Schedule:
    """Return the schedule of a tournament whose first entrant is the baseline."""
    given = {
        "slug": "synthetic",
        "problems": tuple(f"p{i}@1" for i in range(problems)),
        "entrants": tuple(Entrant(name=f"e{i}", policy=f"q{i}@1") for i in range(count)),
        "baseline": "e0",
        "seeds": tuple(range(seeds)),
        "budget": {"evaluations": BUDGET},
        **changes,
    }
    return Schedule.of(Tournament.model_validate(given))


def methods_of(*runs: int, problems: int = 12, first: tuple[int, ...] = (), **changes: Any) -> Schedule:
    """Return a schedule of methods m0, m1, … with so many training runs each, whose first seeds are ``first`` or 0."""
    starts = first or (0,) * len(runs)
    entrants = [
        {"name": f"m{m}-s{seed}", "policy": f"q{m}-{seed}@1", "method": f"m{m}", "training_seed": start + seed}
        for m, (count, start) in enumerate(zip(runs, starts, strict=True))
        for seed in range(count)
    ]
    return schedule_of(problems, 2, 2, entrants=entrants, baseline="m0-s0", **changes)


def results_of(schedule: Schedule, shift: float = 0.0, seed: int = 0) -> Results:
    """Return results whose last entrant is ``shift`` logits better than the first, with the others in between."""
    rng = np.random.default_rng(seed)
    results = Results.empty(schedule)
    shape = results.state.shape
    results.state[:] = ENDED
    logits = rng.normal(0.0, 1.5, (shape[0], 1, 1)) + np.linspace(0.0, shift, shape[2])
    results.reached[:] = rng.random(shape) < 1 / (1 + np.exp(-logits))
    results.evaluations[:] = np.where(results.reached, rng.integers(1, BUDGET + 1, shape), BUDGET)
    results.tokens[:] = 30 * results.evaluations
    results.score[:] = rng.random(shape)
    results.spent_evaluations[:] = BUDGET
    for numbers in (results.diversity, results.diversity_all, results.hypervolume, results.by_policy):
        numbers[:] = rng.random(numbers.shape)
    results.by_policy[..., :2] = BUDGET  # completions and answers
    results.best_by[:] = results.score[..., None] * np.linspace(0.2, 1.0, results.best_by.shape[-1])
    return results


def report_of(schedule: Schedule, results: Results, amendments: tuple[Amendment, ...] = ()) -> Report:
    """Return the report, with invented facts of problems and policies."""
    problems = {
        name: ProblemFacts(name=name, digest="d", evaluator_digest="e", target="t", forgeable=False)
        for name in schedule.problems
    }
    names = [name for entrant in schedule.declared.entrants for name in entrant.policy_names]
    policies = {name: PolicyFacts(name=name, digest="d") for name in names}
    return make_report(schedule, amendments, results, problems, policies)
