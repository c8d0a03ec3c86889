"""Standings of the arena: mean ranks, regrets, and tests over problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.stats import rankdata

from experiments.arena.plan import DEFAULT
from speciate.domain.arrays import FloatArray
from speciate.tournaments.statistics.significance import holm, sign_flips

Values = Mapping[tuple[str, str, int], float]
"""Values by arm, problem and seed; higher is better."""
_DRAWS: Final = 200_000


@dataclass(frozen=True)
class Standing:
    """An arm beside the default strategy, on all problems together."""

    arm: str
    rank: float
    """Ranks of single seeds, averaged; 1 is best."""
    regret: float
    """How far the mean over seeds is below that of the best arm of a problem, in percent of the range of all values of
    the problem; mean over problems."""
    largest_regret: float
    ahead: int
    """Problems on which the default strategy is better."""
    behind: int
    lead: float
    """The default strategy's, measured as regrets are."""
    p: float | None
    """Sign-flip test over problems, after Holm; None for the default strategy itself."""


def standings(values: Values, of: str = DEFAULT) -> list[Standing]:
    """Return one standing for each arm, best mean rank first; none if no run is complete."""
    arms = list(dict.fromkeys(arm for arm, _, _ in values))
    grid = _grid(values, arms)
    if not grid:
        return []
    ranks = np.array([rankdata(-block, axis=1).mean(axis=0) for block in grid.values()])
    means = np.array([block.mean(axis=0) for block in grid.values()])
    ranges = np.array([max(float(block.max() - block.min()), 1e-12) for block in grid.values()])
    regrets = 100 * (means.max(axis=1, keepdims=True) - means) / ranges[:, None]
    leads = 100 * (means[:, [arms.index(of)]] - means) / ranges[:, None]
    others = [arm for arm in arms if arm != of]
    flips = sign_flips([leads[:, arms.index(arm)] for arm in others], np.random.default_rng(0), draws=_DRAWS)
    p_values = dict(zip(others, holm([flip.p_value for flip in flips]), strict=True))
    return [
        Standing(
            arm,
            ranks[:, i].mean(),
            regrets[:, i].mean(),
            regrets[:, i].max(),
            int((leads[:, i] > 1e-7).sum()),
            int((leads[:, i] < -1e-7).sum()),
            leads[:, i].mean(),
            p_values.get(arm),
        )
        for i, arm in sorted(enumerate(arms), key=lambda pair: ranks[:, pair[0]].mean())
    ]


def table(of_marks: Mapping[str, list[Standing]]) -> str:
    """Return one row for each arm: mean ranks after all marks, and the comparison after the last one."""
    *_, last = of_marks.values()
    heads = [*(f"rank after {mark}" for mark in of_marks), "regret, %", "ahead : behind", "lead, %", "p"]
    lines = [f"| arm | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    for each in last:
        facts = [next(f"{s.rank:.2f}" for s in standings if s.arm == each.arm) for standings in of_marks.values()]
        compared = (
            ["", "", ""] if each.p is None else [f"{each.ahead} : {each.behind}", f"{each.lead:+.1f}", f"{each.p:.2g}"]
        )
        lines.append(f"| {' | '.join([each.arm, *facts, f'{each.regret:.1f}', *compared])} |")
    return "\n".join(lines)


def clock_table(of_clocks: Mapping[str, Mapping[str, list[Standing]]]) -> str:
    """Return one row for each arm: its mean ranks after all marks of each clock."""
    arms = [standing.arm for standing in [*[*of_clocks.values()][-1].values()][-1]]
    lines = [f"| arm | {' | '.join(of_clocks)} |", f"|---|{'---|' * len(of_clocks)}"]
    for arm in arms:
        ranks = [
            "/".join(f"{each.rank:.2f}" for standings in of_marks.values() for each in standings if each.arm == arm)
            for of_marks in of_clocks.values()
        ]
        lines.append(f"| {' | '.join([arm, *ranks])} |")
    return "\n".join(lines)


def extent(values: Values) -> str:
    """Return the numbers of problems and seeds that all arms have."""
    seeds = [len(block) for block in _grid(values, list(dict.fromkeys(arm for arm, _, _ in values))).values()]
    fewest, most = min(seeds, default=0), max(seeds, default=0)
    return f"{len(seeds)} problems, {f'{fewest} to ' if fewest < most else ''}{most} seeds"


def _grid(values: Values, arms: Sequence[str]) -> dict[str, FloatArray]:
    """Return the values of seeds with all arms by problem, shape (seeds, arms)."""
    rows: dict[str, list[list[float]]] = defaultdict(list)
    for problem, seed in dict.fromkeys((problem, seed) for _, problem, seed in values):
        row = [values.get((arm, problem, seed)) for arm in arms]
        if None not in row:
            rows[problem].append([value for value in row if value is not None])
    return {problem: np.array(block) for problem, block in sorted(rows.items())}
