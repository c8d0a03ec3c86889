"""Allocate the evaluations of a campaign to its problems.

A problem with g evaluations since its last new target reaches another one with its next evaluation with probability
1 / (g + 2): the posterior mean under a uniform prior, Laplace's rule of succession (1814). The order of problems is the
same under any prior that all targets share: a longer search without success always lowers the chance. Since chances
only fall, always serving the highest one maximizes the number of successes at any time (Righter and Shanthikumar,
"Scheduling multiclass single server queueing systems to stochastically maximize the number of successful departures",
Probability in the Engineering and Informational Sciences 3, 1989; the chance is the Gittins index of such a job: Aalto,
Ayesta and Righter, Queueing Systems 63, 2009). So there is no exploration and no parameter to tune. The model assumes
that the search for the next target starts afresh after each target; docs/concepts/campaigns.md discusses the effect.

Decisions depend on the results of earlier slices in decision order, never on the order in which slices end, so that a
campaign does not depend on the speed of its workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Slice:
    problem: int
    evaluations: int
    spent: int | None = None  # evaluations spent; None while the slice is under way
    gap: int = 0  # evaluations of the problem since its last new target, at the end of the slice
    closed: bool = False  # true if the problem takes no more: it is unlocked, or its run has ended


@dataclass(frozen=True, slots=True)
class Decision:
    problem: int
    evaluations: int
    gap: int  # known evaluations since its last new target
    chance: float  # posterior probability that its next evaluation reaches a new target


def chance(gap: int) -> float:
    """Return the posterior probability of a new target after ``gap`` evaluations without one."""
    return 1 / (gap + 2)


def adaptive(
    history: Sequence[Slice], *, problems: int, evaluations: int, size: int, parallel: int, seed: int
) -> Decision | None:
    """Return the next slice, or None if earlier slices must end first or nothing is left to grant.

    ``history`` is in the order of decisions; ``evaluations`` is the budget of all problems together. Slices have
    ``size`` evaluations: the last ones may be smaller, and the last open problem gets the whole rest. With p =
    ``parallel`` slices under way a decision uses all but the p − 1 latest results, or more if it would otherwise find
    no open problem. ``seed`` orders equals.
    """
    order = np.random.default_rng(seed).permutation(problems)
    for settled in range(max(0, len(history) + 1 - parallel), len(history) + 1):
        if any(each.spent is None for each in history[:settled]):
            return None
        gaps = _gaps(history[:settled], problems)
        alone = len(gaps) == 1
        for each in history[settled:]:
            gaps.pop(each.problem, None)
        left = evaluations - sum(each.spent or 0 for each in history[:settled])
        left -= sum(each.evaluations for each in history[settled:])
        if gaps and left > 0:
            best = min(gaps, key=lambda problem: (gaps[problem], order[problem]))
            return Decision(best, left if alone else min(size, left), gaps[best], chance(gaps[best]))
    return None


def fixed(history: Sequence[Slice], *, problems: int, evaluations: int, parallel: int) -> Decision | None:
    """Return the next problem's equal share, in problem order, or None; arguments as for ``adaptive``."""
    position, under_way = len(history), sum(each.spent is None for each in history)
    if position == problems or under_way >= parallel:
        return None
    share = evaluations // problems + (position < evaluations % problems)
    return Decision(position, share, 0, chance(0))


def _gaps(slices: Sequence[Slice], problems: int) -> dict[int, int]:
    """Return the evaluations since the last new target of every open problem."""
    gaps = dict.fromkeys(range(problems), 0)
    for each in slices:
        gaps[each.problem] = each.gap
    for each in slices:
        if each.closed:
            gaps.pop(each.problem, None)
    return gaps
