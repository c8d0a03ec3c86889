"""Curves of a report: targets reached by cost, and budget laws."""

import math
from typing import Final

import numpy as np

from speciate.domain.arrays import BoolArray, FloatArray
from speciate.domain.tournament import Schedule
from speciate.tournaments.report.measures import BudgetLaw, CurvePoint, Reached
from speciate.tournaments.report.resamples import ALIKE, TOO_FEW, rng_for
from speciate.tournaments.report.results import Results
from speciate.tournaments.report.run_summary import budgets
from speciate.tournaments.statistics.bootstrap import MIN_CLUSTERS
from speciate.tournaments.statistics.budget_curve import fit_budget_curve

_STEPS: Final = 200  # largest number of points in a curve


def reached_curves(schedule: Schedule, results: Results) -> tuple[Reached, ...]:
    curves = []
    for unit, spent in (("evaluations", results.evaluations), ("tokens", results.tokens)):
        for i, entrant in enumerate(schedule.declared.entrants):
            ended = results.ended[..., i]
            if ended.any() and (unit == "evaluations" or spent.any()):
                curves.append(reached_curve(entrant.name, unit, spent[..., i][ended], results.reached[..., i][ended]))
    return tuple(curves)


def reached_curve(name: str, unit: str, spent: FloatArray, reached: BoolArray) -> Reached:
    """Return the empirical distribution of costs to target over all pairs, including those that were never reached.

    ``spent`` are costs until the pair's target was reached, or until its run ended. Source: Hansen et al. 2021, arXiv
    1603.08785, section 4.3 (runtime distributions).
    """
    positions, times = np.unique(spent[reached], return_counts=True)
    steps, censored = len(positions), spent[~reached]
    drawn = np.unique(np.linspace(0, steps - 1, min(steps, _STEPS)).astype(int)) if steps else np.zeros(0, dtype=int)
    return Reached(
        entrant=name,
        unit=unit,
        spent=tuple(positions[drawn].tolist()),
        share=tuple((np.cumsum(times) / reached.size)[drawn].tolist()),
        pairs=reached.size,
        censored=len(censored),
        sound_until=float(censored.min()) if len(censored) else None,
    )


def solve_rate_laws(schedule: Schedule, results: Results) -> tuple[BudgetLaw, ...]:
    within = results.evaluations[..., None] <= budgets(schedule.declared)
    solved = (within & results.reached[..., None]).astype(np.float64)
    return tuple(_law(schedule, results, i, solved[:, :, i]) for i in range(len(schedule.declared.entrants)))


def best_score_laws(schedule: Schedule, results: Results) -> tuple[BudgetLaw, ...]:
    return tuple(_law(schedule, results, i, results.best_by[..., i, :]) for i in range(len(schedule.declared.entrants)))


def _law(schedule: Schedule, results: Results, i: int, values: FloatArray) -> BudgetLaw:
    """Fit the law to an entrant's values at each budget, shape (n_problems, n_seeds, n_budgets)."""
    budget, at = schedule.declared.budget.evaluations or 1, budgets(schedule.declared)
    ended = results.ended[..., i]
    some = ended.any(axis=1)
    curves = (values * ended[..., None])[some].sum(axis=1) / np.maximum(ended[some].sum(axis=1), 1)[:, None]
    problems = len(curves)
    law = BudgetLaw(
        entrant=schedule.declared.entrants[i].name,
        budgets=tuple(at.tolist()),
        measured=tuple(curves.mean(axis=0).tolist()) if problems else (),
        predicted=(),
        worst_residual=None,
        problems=problems,
        note="the budget is too small",
    )
    if problems < MIN_CLUSTERS:
        return law.model_copy(update={"note": TOO_FEW.replace("interval", "law and interval")})
    if len(at) < 4:
        return law
    # Declared ranges are scales, not limits: a score has no known maximum.
    largest = max(1.0, float(curves.max()))
    ahead = [budget, 2 * budget, 4 * budget]
    fit = fit_budget_curve(curves, at, ahead, rng_for(schedule, 20_000 + i), largest=largest)
    points = zip(ahead, fit.predicted.tolist(), _known(fit.low), _known(fit.high), strict=True)
    note = ALIKE if np.isnan(fit.low).any() else "beyond the budget only if the law holds, which no interval covers"
    predicted = tuple(CurvePoint(evaluations=x, value=y, low=low, high=high) for x, y, low, high in points)
    return law.model_copy(update={"predicted": predicted, "worst_residual": fit.worst_residual, "note": note})


def _known(ends: FloatArray) -> list[float | None]:
    return [None if math.isnan(end) else end for end in ends.tolist()]
