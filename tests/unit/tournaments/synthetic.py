"""Results of tournaments that nobody ran, for reports."""

from __future__ import annotations

from typing import Any

import numpy as np

from speciate.domain.tournament import Course, Entrant, Tournament
from speciate.tournaments.report import Amendment, PolicyFacts, ProblemFacts, Report
from speciate.tournaments.reporting import make_report
from speciate.tournaments.results import ENDED, Results

BUDGET = 100


def course_of(problems: int, seeds: int, entrants: int, **changes: Any) -> Course:
    """Return a tournament in which the first entrant is the baseline."""
    given = {
        "slug": "synthetic",
        "problems": tuple(f"p{i}@1" for i in range(problems)),
        "entrants": tuple(Entrant(name=f"e{i}", policy=f"q{i}@1") for i in range(entrants)),
        "baseline": "e0",
        "seeds": tuple(range(seeds)),
        "budget": {"evaluations": BUDGET},
        **changes,
    }
    return Course.of(Tournament.model_validate(given))


def results_of(course: Course, shift: float = 0.0, seed: int = 0) -> Results:
    """Return results in which the last entrant is ``shift`` logits better than the first, others between."""
    rng = np.random.default_rng(seed)
    results = Results.empty(course)
    shape = results.state.shape
    results.state[:] = ENDED
    logits = rng.normal(0.0, 1.5, (shape[0], 1, 1)) + np.linspace(0.0, shift, shape[2])
    results.reached[:] = rng.random(shape) < 1 / (1 + np.exp(-logits))
    results.evaluations[:] = np.where(results.reached, rng.integers(1, BUDGET + 1, shape), BUDGET)
    results.tokens[:] = 30 * results.evaluations
    results.score[:] = rng.random(shape)
    results.spent_evaluations[:] = BUDGET
    return results


def report_of(course: Course, results: Results, amendments: tuple[Amendment, ...] = ()) -> Report:
    """Return the report, with facts of problems and policies made up."""
    problems = {
        name: ProblemFacts(name=name, digest="d", evaluator_digest="e", target="t", forgeable=False)
        for name in course.problems
    }
    policies = {e.policy: PolicyFacts(name=e.policy, digest="d") for e in course.declared.entrants}
    return make_report(course, amendments, results, problems, policies)
