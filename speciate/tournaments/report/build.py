"""Build the report from the declaration and the stored results. It does not depend on arrival order or clocks."""

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

from speciate.domain.arrays import FloatArray
from speciate.domain.tournament import Schedule
from speciate.tournaments.report.comparisons import compare, contrasts_withheld, decided_after
from speciate.tournaments.report.curves import best_score_laws, reached_curves, solve_rate_laws
from speciate.tournaments.report.measures import Cost, Execution, NoisyScore, Pairwise, Strength
from speciate.tournaments.report.methods import compare_groups
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
from speciate.tournaments.report.qualities import health, qualities
from speciate.tournaments.report.resamples import TOO_FEW, Resamples
from speciate.tournaments.report.results import MISSING, PENDING, Results
from speciate.tournaments.report.standings import draws, standings
from speciate.tournaments.report.warnings import warnings
from speciate.tournaments.statistics.bootstrap import MIN_CLUSTERS
from speciate.tournaments.statistics.bradley_terry import applies, bradley_terry, pairwise_outcomes
from speciate.tournaments.statistics.estimators import chance_of_better


def make_standings(
    schedule: Schedule, amendments: Sequence[Amendment], results: Results, resamples: Resamples | None = None
) -> Standings:
    resamples = resamples or Resamples(schedule)
    results = _until_decided(schedule, results)
    return Standings(
        slug=schedule.declared.slug,
        metric=schedule.declared.metric.value,
        ended=int(results.ended.sum()),
        planned=results.state.size,
        standings=standings(schedule, results, resamples),
        comparisons=compare(schedule, amendments, results, resamples, schedule.declared.comparisons),
        nulls=tuple(compare(schedule, amendments, results, resamples, [pair])[0] for pair in schedule.declared.nulls),
        methods=compare_groups(schedule, amendments, results),
    )


def make_matrix(schedule: Schedule, results: Results) -> Matrix:
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
    executions: Sequence[Execution] = (),
) -> Report:
    decided = _until_decided(schedule, results)
    resamples = Resamples(schedule)
    withheld = contrasts_withheld(schedule, decided)
    names = dict.fromkeys(name for entrant in schedule.declared.entrants for name in entrant.policy_names)
    policy_health = health(schedule, decided, resamples)
    return Report(
        design=Design(
            declared=schedule.declared,
            digest=schedule.declared.digest,
            amendments=tuple(amendments),
            problems=tuple(problems[name] for name in schedule.problems),
            policies=tuple(policies[name] for name in names),
            seeds=schedule.seeds,
            planned=results.state.size,
            ended=int(decided.ended.sum()),
            missing=int((decided.state == MISSING).sum()),
            pending=int((decided.state == PENDING).sum()),
            decided_after=decided_after(schedule, results),
            k=len(schedule.seeds),
        ),
        standings=make_standings(schedule, amendments, results, resamples),
        matrix=make_matrix(schedule, results),
        reached=reached_curves(schedule, decided),
        budget_laws=solve_rate_laws(schedule, decided),
        score_laws=best_score_laws(schedule, decided),
        pairwise=_pairwise(schedule, decided, resamples, withheld),
        strengths=_strengths(schedule, decided, withheld),
        costs=_costs(schedule, decided),
        executions=tuple(executions),
        missing=_missing_runs(schedule, decided),
        draws=draws(schedule, decided, resamples),
        noisy=_noisy(schedule, decided),
        qualities=qualities(schedule, decided, resamples),
        health=policy_health,
        warnings=tuple(warnings(schedule, decided, policy_health)),
    )


def _until_decided(schedule: Schedule, results: Results) -> Results:
    """Drop the problems beyond the decision: their number depends on how fast the decision took effect."""
    decided = decided_after(schedule, results)
    return results if decided is None else results.first(decided)


def _speeds(schedule: Schedule, results: Results) -> FloatArray:
    """Return a score per run that is higher the sooner it reached the target; lowest for runs that never did."""
    return np.where(results.reached, -results.evaluations, -2.0 * (schedule.declared.budget.evaluations or 1))


def _pairwise(schedule: Schedule, results: Results, resamples: Resamples, withheld: str) -> tuple[Pairwise, ...]:
    speeds, whole = _speeds(schedule, results), np.asarray(results.ended.all(axis=1))
    pairs = []
    for (i, a), (j, b) in combinations(enumerate(schedule.declared.entrants), 2):
        both = whole[:, i] & whole[:, j]
        chances = chance_of_better(speeds[both][..., i], speeds[both][..., j]) if both.any() else np.zeros(0)
        runs = 2 * int(both.sum()) * len(schedule.seeds)
        pairs.append(Pairwise(a=a.name, b=b.name, chance=resamples.mean(chances, runs, withheld=withheld)))
    return tuple(pairs)


def _strengths(schedule: Schedule, results: Results, withheld: str) -> tuple[Strength, ...]:
    some = results.ended.any(axis=(1, 2))
    if not some.any() or not results.ended.any(axis=(0, 1)).all():
        return ()
    wins, ties = pairwise_outcomes(np.where(results.ended, _speeds(schedule, results), np.nan)[some])
    if not applies(wins, ties) or not _connected(wins, ties):
        return ()
    fit, withheld = bradley_terry(wins, ties), TOO_FEW if some.sum() < MIN_CLUSTERS else withheld
    strengths = []
    for i, entrant in enumerate(schedule.declared.entrants):
        ends = {"note": withheld} if withheld else {"low": float(fit.low[i]), "high": float(fit.high[i])}
        strengths.append(Strength.model_validate({"entrant": entrant.name, "strength": float(fit.strength[i]), **ends}))
    return tuple(strengths)


def _connected(wins: FloatArray, ties: FloatArray) -> bool:
    met = (wins + np.swapaxes(wins, 1, 2) + ties).sum(axis=0) > 0
    reach = np.linalg.matrix_power(met.astype(np.float64) + np.eye(len(met)), len(met)) > 0
    return bool(reach.all())


def _costs(schedule: Schedule, results: Results) -> tuple[Cost, ...]:
    return tuple(
        Cost(
            entrant=entrant.name,
            runs=int((results.state[..., i] != PENDING).sum()),
            dollars=float(results.cost[..., i].sum()),
            evaluations=int(results.spent_evaluations[..., i].sum()),
            tokens=int(results.spent_tokens[..., i].sum()),
            **{name: int(getattr(results, name)[..., i].sum()) for name in ("evaluated", "failed", "duplicates")},
        )
        for i, entrant in enumerate(schedule.declared.entrants)
    )


def _noisy(schedule: Schedule, results: Results) -> tuple[NoisyScore, ...]:
    measured = results.ended & np.isfinite(results.score_margin)
    runs = measured.sum(axis=1)
    scores = np.where(measured, results.score, 0.0).sum(axis=1) / np.maximum(runs, 1)
    margins = np.linalg.norm(np.where(measured, results.score_margin, 0.0), axis=1) / np.maximum(runs, 1)
    return tuple(
        NoisyScore(problem=problem, entrant=entrant.name, score=score, margin=margin, runs=count)
        for problem, *rows in zip(schedule.problems, scores.tolist(), margins.tolist(), runs.tolist(), strict=False)
        for entrant, score, margin, count in zip(schedule.declared.entrants, *rows, strict=True)
        if count
    )


def _missing_runs(schedule: Schedule, results: Results) -> tuple[MissingRun, ...]:
    entrants = schedule.declared.entrants
    return tuple(
        MissingRun(entrant=entrants[e].name, problem=schedule.problems[p], seed=schedule.seeds[s], reason=why)
        for (p, s, e), why in sorted(results.reasons.items())
    )
