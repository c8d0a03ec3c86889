"""Compare how much evaluations of a seed program differ with what its problem declares."""

import statistics
from collections.abc import Sequence

from speciate.domain.candidate import Evaluation
from speciate.domain.numbers import short_number
from speciate.domain.objective import Objective
from speciate.domain.problem import Problem


def deviations(evaluations: Sequence[Evaluation]) -> tuple[float, ...]:
    """Return the standard deviations of the rewards of at least two evaluations that succeeded, shape (d,)."""
    return tuple(map(statistics.stdev, zip(*(each.rewards or () for each in evaluations), strict=True)))


def varying(problem: Problem, evaluations: Sequence[Evaluation]) -> list[tuple[Objective, str]]:
    """Return the objectives whose rewards differ, with the size of the differences in words."""
    return [
        (objective, _size(objective, deviation))
        for objective, deviation in zip(problem.objectives, deviations(evaluations), strict=True)
        if deviation > 0
    ]


def noise_advice(problem: Problem, evaluations: Sequence[Evaluation]) -> str:
    """Return what to do if evaluations and declaration disagree about noise; empty if they agree."""
    measured, count = varying(problem, evaluations), len(evaluations)
    declared = {o.name for o, noisy in zip(problem.objectives, problem.noisy, strict=True) if noisy}
    missing = {o.name: size for o, size in measured if o.name not in declared and o.aim}
    if missing:
        sizes = " and ".join(f"{name} varies by {size}" for name, size in missing.items())
        return (
            f"warning: {sizes} in {count} evaluations of the seed program, and the problem does not declare it, so that"
            " a lucky evaluation would be the best program. Add `stochastic = true` to the problem or to the objective:"
            " runs then evaluate good programs again."
        )
    if declared and not measured:
        names = " and ".join(sorted(declared))
        varies = "vary" if len(declared) > 1 else "varies"
        return f"note: the problem declares that {names} {varies}, and {count} evaluations of the seed program agree."
    return ""


def _size(objective: Objective, deviation: float) -> str:
    low, high = objective.range
    share = "" if objective.estimated else f", {100 * deviation / (high - low):.2g} % of its range"
    return f"{short_number(deviation, 3)} (standard deviation{share})"
