"""The report as a function of what was declared and what is stored. Arrival, restarts and clocks have no part in it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from speciate.domain.tournament import Schedule
from speciate.tournaments.report.comparisons import compare, decided_after, withheld_from_contrasts
from speciate.tournaments.report.measures import BudgetLaw, Cost, CurvePoint, Pairwise, Reached, Strength
from speciate.tournaments.report.models import (
    Amendment,
    Design,
    Matrix,
    MatrixRow,
    MissingRun,
    PolicyFacts,
    ProblemFacts,
    Report,
    Standings,
)
from speciate.tournaments.report.qualities import entropy_fits, health, profiles, qualities
from speciate.tournaments.report.resamples import ALIKE, TOO_FEW, Resamples, rng_for
from speciate.tournaments.report.results import MISSING, PENDING, Results
from speciate.tournaments.report.run_summary import budgets
from speciate.tournaments.report.standings import draws, standings
from speciate.tournaments.statistics.arrays import BoolArray, FloatArray
from speciate.tournaments.statistics.bootstrap import MIN_CLUSTERS
from speciate.tournaments.statistics.bradley_terry import applies, bradley_terry, compare_all
from speciate.tournaments.statistics.budget_curve import fit_budget_curve
from speciate.tournaments.statistics.estimators import chance_of_better
from speciate.tournaments.statistics.running_time import ecdf

_STEPS = 200  # points of a curve that is drawn


def make_standings(
    schedule: Schedule, amendments: Sequence[Amendment], results: Results, resamples: Resamples | None = None
) -> Standings:
    """Return the standings of what is known."""
    resamples = resamples or Resamples(schedule)
    results = _until_decided(schedule, results)
    state = results.state
    return Standings(
        slug=schedule.declared.slug,
        metric=schedule.declared.metric.value,
        ended=int(results.ended.sum()),
        planned=state.size,
        standings=standings(schedule, results, resamples),
        comparisons=compare(schedule, amendments, results, schedule.problems, resamples),
    )


def make_matrix(schedule: Schedule, results: Results) -> Matrix:
    """Return the successes of every entrant on every problem."""
    results = _until_decided(schedule, results)
    reached = (results.reached & results.ended).sum(axis=1).tolist()
    counts = results.ended.sum(axis=1).tolist()
    return Matrix(
        entrants=tuple(entrant.name for entrant in schedule.declared.entrants),
        rows=tuple(
            MatrixRow(problem=problem, successes=tuple(reached[i]), runs=tuple(counts[i]))
            for i, problem in enumerate(schedule.problems[: len(reached)])
        ),
    )


def make_report(
    schedule: Schedule,
    amendments: Sequence[Amendment],
    results: Results,
    problems: Mapping[str, ProblemFacts],
    policies: Mapping[str, PolicyFacts],
) -> Report:
    """Return the whole report.

    Args:
        schedule: What was declared, with its amendments.
        amendments: The same amendments as they were made.
        results: What is known of every run.
        problems: What is known of each problem, by name.
        policies: What is known of each policy, by name.
    """
    decided = decided_after(schedule, results)
    kept = _until_decided(schedule, results)
    names = [entrant.name for entrant in schedule.declared.entrants]
    resamples = Resamples(schedule)
    withheld = withheld_from_contrasts(schedule, kept)
    policy_health = health(schedule, kept, resamples)
    return Report(
        design=Design(
            declared=schedule.declared,
            digest=schedule.declared.digest,
            amendments=tuple(amendments),
            problems=tuple(problems[name] for name in schedule.problems),
            policies=tuple(policies[name] for name in _policies(schedule)),
            seeds=schedule.seeds,
            planned=results.state.size,
            ended=int(kept.ended.sum()),
            missing=int((kept.state == MISSING).sum()),
            pending=int((kept.state == PENDING).sum()),
            decided_after=decided,
            k=len(schedule.seeds),
        ),
        standings=make_standings(schedule, amendments, results, resamples),
        matrix=make_matrix(schedule, results),
        reached=tuple(
            _reached(name, unit, spent[..., i][kept.ended[..., i]], kept.reached[..., i][kept.ended[..., i]])
            for unit, spent in (("evaluations", kept.evaluations), ("tokens", kept.tokens))
            for i, name in enumerate(names)
            if kept.ended[..., i].any() and not (unit == "tokens" and not spent.any())
        ),
        budget_laws=tuple(_law(schedule, kept, i, _solved(schedule, kept, i)) for i in range(len(names))),
        score_laws=tuple(_law(schedule, kept, i, kept.best_by[..., i, :]) for i in range(len(names))),
        pairwise=_pairwise(schedule, kept, resamples, withheld),
        strengths=_strengths(schedule, kept, withheld),
        costs=tuple(_cost(kept, i, name) for i, name in enumerate(names)),
        missing=tuple(
            MissingRun(entrant=names[e], problem=schedule.problems[p], seed=schedule.seeds[s], reason=why)
            for (p, s, e), why in sorted(kept.reasons.items())
        ),
        draws=draws(schedule, kept, resamples),
        profiles=profiles(schedule, kept),
        qualities=qualities(schedule, kept, resamples),
        health=policy_health,
        entropy_fits=entropy_fits(policy_health, policies),
    )


def _until_decided(schedule: Schedule, results: Results) -> Results:
    """Leave out what was run beyond the decision: how much that is depends on how fast it came."""
    decided = decided_after(schedule, results)
    return results if decided is None else results.first(decided)


def _policies(schedule: Schedule) -> list[str]:
    return list(dict.fromkeys(name for entrant in schedule.declared.entrants for name in entrant.asked))


def _reached(name: str, unit: str, spent: FloatArray, reached: BoolArray) -> Reached:
    found = ecdf(spent, reached)
    steps = len(found.spent)
    kept = np.unique(np.linspace(0, steps - 1, min(steps, _STEPS)).astype(int)) if steps else np.zeros(0, dtype=int)
    return Reached(
        entrant=name,
        unit=unit,
        spent=tuple(found.spent[kept].tolist()),
        share=tuple(found.share[kept].tolist()),
        pairs=found.pairs,
        censored=len(found.censored),
        sound_until=found.sound_until if math.isfinite(found.sound_until) else None,
    )


def _solved(schedule: Schedule, results: Results, i: int) -> FloatArray:
    """Return which runs of an entrant had reached the target at each budget, shape (n_problems, n_seeds, n_budgets)."""
    by_then = results.evaluations[..., i, None] <= budgets(schedule.declared)
    return (by_then & results.reached[..., i, None]).astype(np.float64)


def _law(schedule: Schedule, results: Results, i: int, values: FloatArray) -> BudgetLaw:
    """Fit the law to what an entrant had at each budget, shape (n_problems, n_seeds, n_budgets)."""
    budget, at = schedule.declared.budget.evaluations or 1, budgets(schedule.declared)
    ended = results.ended[..., i]
    some = ended.any(axis=1)
    curves = (values * ended[..., None])[some].sum(axis=1) / np.maximum(ended[some].sum(axis=1), 1)[:, None]
    problems = len(curves)
    measured = tuple(curves.mean(axis=0).tolist()) if problems else ()
    name = schedule.declared.entrants[i].name
    if problems < MIN_CLUSTERS or len(at) < 4:
        note = TOO_FEW.replace("interval", "law and interval") if problems < MIN_CLUSTERS else "the budget is too small"
        return BudgetLaw(entrant=name, budgets=tuple(at.tolist()), measured=measured, predicted=(),
                         worst_residual=None, problems=problems, note=note)  # fmt: skip
    asked = [budget, 2 * budget, 4 * budget]
    # A score has no largest value that is known: ranges are scales, not limits.
    largest = max(1.0, float(curves.max()))
    fit = fit_budget_curve(curves, at, asked, rng_for(schedule, 20_000 + i), largest=largest)
    points = zip(fit.at.tolist(), fit.predicted.tolist(), _known(fit.low), _known(fit.high), strict=True)
    return BudgetLaw(
        entrant=name,
        budgets=tuple(at.tolist()),
        measured=measured,
        predicted=tuple(CurvePoint(evaluations=x, value=y, low=low, high=high) for x, y, low, high in points),
        worst_residual=fit.worst_residual,
        problems=problems,
        note=ALIKE if np.isnan(fit.low).any() else "beyond the budget only if the law holds, which no interval covers",
    )


def _known(ends: FloatArray) -> list[float | None]:
    return [None if math.isnan(end) else end for end in ends.tolist()]


def _outcomes(schedule: Schedule, results: Results) -> FloatArray:
    """Return how soon each run reached the target, higher is sooner; never is a number below every other."""
    never = -2.0 * (schedule.declared.budget.evaluations or 1)
    return np.where(results.reached, -results.evaluations, never)


def _pairwise(schedule: Schedule, results: Results, resamples: Resamples, withheld: str) -> tuple[Pairwise, ...]:
    sooner, whole = _outcomes(schedule, results), np.asarray(results.ended.all(axis=1))
    found = []
    for (i, a), (j, b) in combinations(enumerate(schedule.declared.entrants), 2):
        both = whole[:, i] & whole[:, j]
        chances = chance_of_better(sooner[both][..., i], sooner[both][..., j]) if both.any() else np.zeros(0)
        runs = 2 * int(both.sum()) * len(schedule.seeds)
        chance = resamples.mean(chances, runs, withheld=withheld)
        found.append(Pairwise(a=a.name, b=b.name, chance=chance))
    return tuple(found)


def _strengths(schedule: Schedule, results: Results, withheld: str) -> tuple[Strength, ...]:
    some = results.ended.any(axis=(1, 2))
    if not some.any() or not results.ended.any(axis=(0, 1)).all():
        return ()
    wins, ties = compare_all(np.where(results.ended, _outcomes(schedule, results), np.nan)[some])
    if not applies(wins, ties) or not _connected(wins, ties):
        return ()
    fit = bradley_terry(wins, ties)
    names = [entrant.name for entrant in schedule.declared.entrants]
    if withheld:
        return tuple(
            Strength(entrant=name, strength=strength, note=withheld)
            for name, strength in zip(names, fit.strength.tolist(), strict=True)
        )
    return tuple(
        Strength(entrant=name, strength=float(fit.strength[i]), low=float(fit.low[i]), high=float(fit.high[i]))
        for i, name in enumerate(names)
    )


def _connected(wins: FloatArray, ties: FloatArray) -> bool:
    met = (wins + np.swapaxes(wins, 1, 2) + ties).sum(axis=0) > 0
    reach = np.linalg.matrix_power(met.astype(np.float64) + np.eye(len(met)), len(met)) > 0
    return bool(reach.all())


def _cost(results: Results, i: int, name: str) -> Cost:
    return Cost(
        entrant=name,
        runs=int(results.ended[..., i].sum()),
        evaluations=int(results.spent_evaluations[..., i].sum()),
        tokens=int(results.spent_tokens[..., i].sum()),
        evaluated=int(results.evaluated[..., i].sum()),
        failed=int(results.failed[..., i].sum()),
        duplicates=int(results.duplicates[..., i].sum()),
    )
