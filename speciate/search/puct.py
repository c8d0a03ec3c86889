"""Select parents by PUCT over an archive: the best child of a program tells what its next children may reach.

Source: TTT-Discover (Yuksekgonul et al. 2026, arXiv 2601.16175), the selection of states. The value of a program is its
best child's, not the mean, because a search needs one good program. Failed children count as visits, and so do
infeasible children of a feasible program: far below all others, one would keep its parent from ever being selected
again. A batch selects at most one program of a lineage, so that its groups of completions learn
from different prompts.

Deviations from the source: the archive is the buffer of the best programs; an expansion is ``Family.group`` children,
since a search with lanes knows the children only; T is the sum of n over the archive, so that expansions of a program
whose ancestors are in the archive count for each of them.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from speciate.domain.arrays import FloatArray, IntArray
from speciate.domain.reward import RewardSpace
from speciate.search.archive import ParentPool
from speciate.search.strategy import Family


def puct_row(
    pool: ParentPool,
    family: Family,
    weights: FloatArray,
    taken: Sequence[int],
    exploration: float,
    rng: np.random.Generator,
) -> int:
    """Return the row of the parent with the highest PUCT score whose lineage the batch has not taken.

    ``taken`` are the parents that the batch has selected; if they block every lineage, none is blocked. ``weights``, of
    shape (k,), weigh the objectives, ``exploration`` is the constant c, and ``rng`` breaks ties.
    """
    values = (pool.points * weights).sum(axis=1)
    at, exists = _positions(family.numbers, pool.numbers)
    best, visits = np.full(len(pool), -np.inf), np.zeros(len(pool))
    best[exists] = _best_child(family, pool.space, weights)[at[exists]]
    visits[exists] = _expansions(family)[at[exists]]
    scores = puct(np.where(np.isfinite(best), best, values), values, visits, exploration)
    free = ~np.isin(pool.numbers, _relatives(family, taken))
    scores = np.where(free | ~free.any(), scores, -np.inf)
    winners = np.flatnonzero(scores == scores.max())
    return int(winners[rng.integers(len(winners))])


def puct(best: FloatArray, values: FloatArray, visits: FloatArray, exploration: float) -> FloatArray:
    """Return Q + c · (Vmax − Vmin) · P · √(1 + T) / (1 + n), shape (n,).

    The prior P falls linearly with the rank of a program's own value and sums to 1; equal values share their mean rank.

    ``best`` is Q: the value of the best child, or of the program before its first scored child. ``values`` is V,
    ``visits`` is n: the expansions of each program or its descendants, of which T is the sum. ``exploration`` is c.
    """
    _, same, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[same]
    prior = ranks / ranks.sum()
    spread = float(np.ptp(values)) or 1.0  # otherwise equal programs would never take turns
    scores: FloatArray = best + exploration * spread * prior * np.sqrt(1.0 + visits.sum()) / (1.0 + visits)
    return scores


def _positions(numbers: IntArray, numbers_sought: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    at = np.minimum(np.searchsorted(numbers, numbers_sought), max(len(numbers) - 1, 0))
    return at, numbers[at] == numbers_sought if len(numbers) else np.zeros(len(numbers_sought), bool)


def _best_child(family: Family, space: RewardSpace, weights: FloatArray) -> FloatArray:
    """Return the highest value among the scored children of each candidate; −∞ without one.

    Infeasible children of a feasible candidate do not count.
    """
    best = np.full(len(family.numbers), -np.inf)
    scored = np.isfinite(family.rewards).all(axis=1) & (family.parents > 0)
    if scored.any():
        at, exists = _positions(family.numbers, family.parents[scored])
        infeasible = space.violation(family.rewards) > 0
        counts = exists & (infeasible[at] | ~infeasible[scored])
        values = (space.normalise(family.rewards[scored]) * weights).sum(axis=1)
        np.maximum.at(best, at[counts], values[counts])
    return best


def _expansions(family: Family) -> FloatArray:
    """Return how often each candidate or a descendant was expanded; ``group`` children are one expansion."""
    at, exists = _positions(family.numbers, family.parents)
    counts = np.bincount(at[exists], minlength=len(family.numbers)) / family.group
    # Parents have lower numbers: from the newest on, each passes its count up.
    for row in np.flatnonzero(exists)[::-1].tolist():
        counts[at[row]] += counts[row]
    return counts


def _relatives(family: Family, taken: Sequence[int]) -> IntArray:
    """Return the numbers of taken candidates, their ancestors and their descendants."""
    parent = dict(zip(family.numbers.tolist(), family.parents.tolist(), strict=True))
    ancestors: set[int] = set()
    for number in taken:
        while number and number not in ancestors:
            ancestors.add(number)
            number = parent.get(number, 0)  # noqa: PLW2901 - climbs to the root
    below = set(taken)
    for number, its_parent in parent.items():  # ascending, so that parents come first
        if its_parent in below:
            below.add(number)
    return np.array(sorted(ancestors | below), dtype=np.int64)
