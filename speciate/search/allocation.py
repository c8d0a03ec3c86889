"""Which problem of a campaign gets the next evaluations.

A problem that has gone g evaluations without a new target (one that it had not reached before) reaches one with its
next evaluation with probability 1 / (g + 2): the posterior mean under a uniform prior, Laplace's rule of succession
(1814). The order of problems is the same under any prior that all targets share: however their difficulties differ, the
longer one has been looked for in vain, the smaller the chance. Where chances only fall, whoever always serves the
highest one has the most successes at any time (Righter and Shanthikumar, "Scheduling multiclass single server queueing
systems to stochastically maximize the number of successful departures", Probability in the Engineering and
Informational Sciences 3, 1989; the chance is such a job's Gittins index: Aalto, Ayesta and Righter, Queueing Systems
63, 2009). So nothing is explored and nothing tuned. That the search for the next target is as young as the last one is
an assumption; docs/concepts/campaigns.md says what it brings and what it costs.

Decisions depend on what came of earlier slices in the order in which those were decided, never on which of them ended
first, so that a campaign is the same however fast its workers are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class Slice:
    """Evaluations that a problem was given.

    Attributes:
        problem: Position of the problem.
        evaluations: How many.
        spent: Those that were spent; None while it is under way.
        gap: Evaluations of the problem since its last new target, when the slice was spent.
        closed: Whether the problem takes no more: it is unlocked, or its run has ended.
    """

    problem: int
    evaluations: int
    spent: int | None = None
    gap: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """Who gets the next slice, and why.

    Attributes:
        problem: Position of the problem.
        evaluations: How many it gets.
        gap: Evaluations since its last new target, as far as the decision knows.
        chance: Posterior probability that its next evaluation reaches a new target.
    """

    problem: int
    evaluations: int
    gap: int
    chance: float


def chance(gap: int) -> float:
    """Return the posterior probability of a new target after ``gap`` evaluations without one."""
    return 1 / (gap + 2)


def adaptive(
    history: Sequence[Slice], *, problems: int, evaluations: int, size: int, parallel: int, seed: int
) -> Decision | None:
    """Return the next slice, or None while earlier ones must end first, or for ever.

    Args:
        history: All slices so far, in the order of their decisions.
        problems: How many problems there are.
        evaluations: Budget of all of them together.
        size: Evaluations of a slice; the last ones may be smaller, and the only problem left gets all that is.
        parallel: Most slices under way; with p of them a decision knows all but the p − 1 latest outcomes, and more
            where it would find nobody else to give to.
        seed: Seed of the order among equals.
    """
    order = np.random.default_rng(seed).permutation(problems)
    for known in range(max(0, len(history) + 1 - parallel), len(history) + 1):
        if any(each.spent is None for each in history[:known]):
            return None
        gaps = _gaps(history[:known], problems)
        alone = len(gaps) == 1
        for each in history[known:]:
            gaps.pop(each.problem, None)
        left = evaluations - sum(each.spent or 0 for each in history[:known])
        left -= sum(each.evaluations for each in history[known:])
        if gaps and left > 0:
            best = min(gaps, key=lambda problem: (gaps[problem], order[problem]))
            return Decision(best, left if alone else min(size, left), gaps[best], chance(gaps[best]))
    return None


def fixed(history: Sequence[Slice], *, problems: int, evaluations: int, parallel: int) -> Decision | None:
    """Return the next problem's whole share, in their order, or None; arguments as for ``adaptive``."""
    position, under_way = len(history), sum(each.spent is None for each in history)
    if position == problems or under_way >= parallel:
        return None
    share = evaluations // problems + (position < evaluations % problems)
    return Decision(position, share, 0, chance(0))


def _gaps(known: Sequence[Slice], problems: int) -> dict[int, int]:
    """Return the evaluations since the last new target of every problem that takes more."""
    gaps = dict.fromkeys(range(problems), 0)
    for each in known:
        gaps[each.problem] = each.gap
    for each in known:
        if each.closed:
            gaps.pop(each.problem, None)
    return gaps
