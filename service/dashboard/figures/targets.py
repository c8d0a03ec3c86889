"""Progress to the targets: how near the best candidate so far is to each, and when a target was met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from service.dashboard.charts import Cell, Chart, Table, axis, hover, scatter, step_line, thinned
from service.dashboard.figures.population import Population
from speciate.domain.arrays import FloatArray
from speciate.domain.objective import ObjectiveRole
from speciate.domain.reward import RewardSpace
from speciate.domain.target import ClaimState
from speciate.schema.unlocks import UnlockRecord

MAX_TARGETS: Final = 6
"""Targets drawn; the table has all."""

_MAX_STEPS: Final = 200
_LEAST: Final = 1e-9
"""Distance of a candidate that satisfies the rule but does not meet the target, such as one stopped at a stage."""

_LOOKS: Final = {
    ClaimState.CONFIRMED: ("confirmed", "star", "--good"),
    ClaimState.PENDING: ("met, awaits confirmation", "star-open", "--warn"),
    ClaimState.REFUTED: ("met, refuted by a second evaluation", "x", "--bad"),
}


def targets_chart(population: Population, claims: Sequence[UnlockRecord]) -> Chart:
    """Draw the nearness of the nearest candidate so far to each target against evaluations.

    Nearness is 1 if the target is met, else 1 minus the mean distance over the objectives that the rule compares, in
    widths of their ranges, and at least 0.

    Args:
        population: The candidates of a run.
        claims: Candidates of the run that met a target, cheapest first.
    """
    problem = population.problem
    order = sorted(range(len(problem.targets)), key=lambda i: not problem.targets[i].unlock)
    data: list[dict[str, Any]] = []
    rows: list[tuple[Cell, ...]] = []
    for rank, i in enumerate(order):
        own = [claim for claim in claims if claim.target == problem.targets[i].name]
        steps, nearness, distance = _nearest(population, i, own)
        if not len(steps):
            continue
        rows += _rows(population, problem.targets[i].name, steps, distance, own)
        if rank < MAX_TARGETS:
            data.append(_line(population, rank, i, steps, nearness, distance))
    drawn = {problem.targets[i].name for i in order[:MAX_TARGETS]}
    data += _marks([claim for claim in claims if claim.target in drawn])
    low = min((min(trace["y"]) for trace in data), default=0.0)
    pad = max(0.02, 0.06 * (1 - low))
    layout = {
        "xaxis": axis("evaluations"),
        "yaxis": axis("nearness, 1 is met", range=[low - pad, 1 + pad]),
        "showlegend": True,
        "hovermode": "closest",
    }
    hidden = len(order) - MAX_TARGETS
    note = (
        "The nearest candidate so far to each target. 1 is met; below it, the distance to the rule's limits is missing,"
        " in widths of the declared ranges and averaged over the rule's objectives. Stars mark confirmed targets."
    ) + (f" {hidden} targets are not drawn; the table has them." if hidden > 0 else "")
    rows.sort(key=lambda row: -int(row[2] or 0))
    columns = ("target", "candidate", "at evaluations", "distance", "state")
    links = tuple(population.link.format(row[1]) for row in rows)
    title = "Progress to targets"
    return Chart("targets", title, note, data, layout, Table(columns, rows, links), height=18, link=population.link)


def _nearest(
    population: Population, target: int, claims: Sequence[UnlockRecord]
) -> tuple[NDArray[np.int64], FloatArray, FloatArray]:
    """Return the rows at which the nearest candidate changed, its nearness and its distance, shape (k,) each."""
    problem, columns = population.problem, population.columns
    rule, space = problem.rules[target], problem.space
    refuted = [claim.number for claim in claims if claim.state is ClaimState.REFUTED]
    rows = np.flatnonzero(columns.scored & ~np.isin(columns.number, refuted))
    rewards = columns.rewards[rows]
    # A candidate that meets the rule but violates another constraint is not there yet.
    others = [
        j
        for j, objective in enumerate(space.objectives)
        if objective.role is ObjectiveRole.CONSTRAINT and objective.name not in rule.uses
    ]
    distance = np.maximum(rule.distances(rewards, space.widths), _LEAST)
    if others:
        distance += RewardSpace(tuple(space.objectives[j] for j in others)).violation(rewards[:, others])
    distance[columns.targets[rows] >> target & 1 == 1] = 0.0
    best = np.minimum.accumulate(distance)
    steps = np.flatnonzero(np.diff(best, prepend=np.inf))
    return rows[steps], np.maximum(0.0, 1.0 - best[steps] / len(rule.uses)), best[steps]


def _line(
    population: Population, rank: int, target: int, steps: NDArray[np.int64], nearness: FloatArray, distance: FloatArray
) -> dict[str, Any]:
    columns, declared = population.columns, population.problem.targets[target]
    keep = [*thinned(len(steps), _MAX_STEPS), len(steps) - 1]
    evaluations = columns.evaluations[steps[keep]]
    evaluations[-1] = columns.evaluations[-1]
    template = hover(f"{declared.name}: %{{text}}", "candidate %{customdata}", "at %{x} evaluations")
    return {
        **step_line(rank, evaluations, nearness[keep], template),
        "name": f"{declared.name} (unlocks)" if declared.unlock else declared.name,
        "customdata": columns.number[steps[keep]],
        "text": [f"distance {value:.4g}" if value else "met" for value in distance[keep].tolist()],
    }


def _marks(claims: Sequence[UnlockRecord]) -> list[dict[str, Any]]:
    return [
        scatter(
            "markers",
            [claim.evaluations for claim in own],
            [1.0] * len(own),
            hover(f"%{{text}}: {name}", "candidate %{customdata}", "at %{x} evaluations"),
            name=name,
            customdata=[claim.number for claim in own],
            text=[claim.target for claim in own],
            marker={"size": 13, "symbol": symbol, "color": colour},
        )
        for state, (name, symbol, colour) in _LOOKS.items()
        if (own := [claim for claim in claims if claim.state is state])
    ]


def _rows(
    population: Population, target: str, steps: NDArray[np.int64], distance: FloatArray, claims: Sequence[UnlockRecord]
) -> list[tuple[Cell, ...]]:
    columns, states = population.columns, {claim.number: _LOOKS[claim.state][0] for claim in claims}
    rows: list[tuple[Cell, ...]] = [
        (target, int(columns.number[row]), int(columns.evaluations[row]), value, "" if value else "met")
        for row, value in zip(steps.tolist(), distance.tolist(), strict=True)
    ]
    rows = [(*row[:4], states.get(int(row[1] or 0), row[4])) for row in rows]
    refuted = [claim for claim in claims if claim.state is ClaimState.REFUTED]
    return rows + [(target, claim.number, claim.evaluations, None, _LOOKS[claim.state][0]) for claim in refuted]
