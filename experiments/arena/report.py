"""Tables of the arena: mean ranks, regrets, and tests over problems."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from scipy.stats import rankdata

from experiments.arena.plan import DEFAULT
from speciate.domain.reward import FloatArray
from speciate.tournaments.statistics.significance import holm, sign_flips

Values = Mapping[tuple[str, str, int], float]
"""Values by arm, problem and seed; higher is better."""
_DRAWS: Final = 200_000


def table(values: Values, of: str = DEFAULT) -> str:
    """Return one row for each arm: mean rank, regret, and ``of`` against it.

    Regret of an arm on a problem: how far its mean over seeds is below that of the best arm, as a share of the range of
    all values of the problem. Ranks are those of single seeds, averaged. The test is over problems.
    """
    arms = list(dict.fromkeys(arm for arm, _, _ in values))
    grid = _grid(values, arms)
    if not grid:
        return "No run is complete."
    ranks = np.array([rankdata(-block, axis=1).mean(axis=0) for block in grid.values()])
    means = np.array([block.mean(axis=0) for block in grid.values()])
    ranges = np.array([max(float(block.max() - block.min()), 1e-12) for block in grid.values()])
    regrets = (means.max(axis=1, keepdims=True) - means) / ranges[:, None]
    leads = (means[:, [arms.index(of)]] - means) / ranges[:, None]
    others = [arm for arm in arms if arm != of]
    flips = sign_flips([leads[:, arms.index(arm)] for arm in others], np.random.default_rng(0), draws=_DRAWS)
    p_values = dict(zip(others, holm([flip.p_value for flip in flips]), strict=True))
    lines = [
        (
            f"| arm | mean rank of {len(arms)} | mean regret, % | largest regret, % | problems on which `{of}` is"
            " ahead : behind | its lead, % | p over problems, after Holm |"
        ),
        "|---|---|---|---|---|---|---|",
    ]
    for i in np.argsort(ranks.mean(axis=0)):
        arm = arms[i]
        facts = [f"{ranks[:, i].mean():.2f}", f"{100 * regrets[:, i].mean():.1f}", f"{100 * regrets[:, i].max():.1f}"]
        if arm != of:
            lead = leads[:, i]
            facts += [f"{(lead > 1e-9).sum()} : {(lead < -1e-9).sum()}", f"{100 * lead.mean():+.1f}"]
            facts += [f"{p_values[arm]:.2g}"]
        lines.append(f"| {arm} | {' | '.join(facts + [''] * (6 - len(facts)))} |")
    seeds = {len(block) for block in grid.values()}
    return "\n".join([*lines, "", f"{len(grid)} problems, {min(seeds)} to {max(seeds)} seeds."])


def problems_table(values: Values) -> str:
    """Return the means of all arms for each problem."""
    arms = list(dict.fromkeys(arm for arm, _, _ in values))
    lines = [f"| problem | {' | '.join(arms)} |", f"|---|{'---|' * len(arms)}"]
    for problem, block in _grid(values, arms).items():
        lines.append(f"| `{problem}` | {' | '.join(f'{mean:.4f}' for mean in block.mean(axis=0))} |")
    return "\n".join(lines)


def _grid(values: Values, arms: Sequence[str]) -> dict[str, FloatArray]:
    """Return the values of seeds with all arms by problem, shape (seeds, arms)."""
    rows: dict[str, list[list[float]]] = defaultdict(list)
    for problem, seed in dict.fromkeys((problem, seed) for _, problem, seed in values):
        row = [values.get((arm, problem, seed)) for arm in arms]
        if None not in row:
            rows[problem].append([value for value in row if value is not None])
    return {problem: np.array(block) for problem, block in sorted(rows.items())}
