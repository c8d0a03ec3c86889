"""Choose between operators (from scratch, change, recombine, polish) by what each has gained in the run.

An operator is drawn with probability proportional to its mean gain per candidate: probability matching on gains
(Goldberg 1990; Fialho, Da Costa, Schoenauer and Sebag 2010, "Analyzing bandit-based adaptive operator selection
mechanisms", section 2). The gain of a candidate is the amount by which it raised E_w of the best wᵀr, w from the
lattice of trade-offs. All is computed from the archive and the latest candidates, so that a replay draws the same.
"""

from collections import defaultdict
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import numpy as np

from speciate.domain.candidate import Individual
from speciate.domain.policy import PolicyRole
from speciate.search.cells import weigh, weightings
from speciate.search.strategy import EliteTable, PopulationView

_PRIOR: Final = 8.0
"""Candidates of each operator, before the first, with the mean gain of all."""
_LEAST: Final = 0.3
"""Least probability of an operator, as a part of its share."""


class Operator(StrEnum):
    """What a prompt asks for."""

    PROPOSE = "propose"
    MUTATE = "mutate"  # one program is changed
    RECOMBINE = "recombine"  # with a second one
    POLISH = "polish"

    @classmethod
    def of(cls, candidate: Individual) -> "Operator | None":
        """Return the operator that made a candidate; None for a seed program."""
        if candidate.role is PolicyRole.SEED:
            return None
        return cls.RECOMBINE if len(candidate.parents) > 1 else cls(candidate.role.value)


def draw_operator(
    view: PopulationView, table: EliteTable, shares: Mapping[Operator, float], rng: np.random.Generator
) -> Operator:
    """Draw one of some operators, given with their shares before anything is known; ``rng`` draws one number."""
    gains = gains_of(view, table)
    everything = [gain for several in gains.values() for gain in several]
    # Without any gain so far, all operators are as good as their shares say.
    mean = max(float(np.mean(everything)) if everything else 0.0, 1e-12)
    rates = {
        each: share * (sum(gains[each]) + _PRIOR * mean) / (len(gains[each]) + _PRIOR)
        for each, share in shares.items()
        if share > 0
    }
    total = sum(rates.values())
    chances = {each: _LEAST * shares[each] + (1 - _LEAST) * rate / total for each, rate in rates.items()}
    edges = np.cumsum(list(chances.values()))
    return list(chances)[int(np.searchsorted(edges, rng.random() * edges[-1], side="right"))]


def gains_of(view: PopulationView, table: EliteTable) -> Mapping[Operator | None, list[float]]:
    """Return the gains of the latest candidates by their operator, oldest first; a failure gained 0."""
    space, latest = view.problem.space, list(reversed(view.latest()))
    _, weights = weightings(len(space.selected), view.problem.weight_vector)
    best = np.full(len(weights), -np.inf)
    if latest:
        # Elites older than the window are what its first candidates had to beat.
        older = table.numbers < latest[0].number
        if older.any():
            best = weigh(space.normalise(table.rewards[older]), weights).max(axis=0)
    gains: dict[Operator | None, list[float]] = defaultdict(list)
    for candidate in latest:
        gain = 0.0
        if candidate.rewards is not None:
            scores = weigh(space.normalise([candidate.rewards]), weights)[0]
            raised = np.maximum(scores, best)
            if np.isfinite(best).all():
                # Leaving an infeasible region is one large step, and tells nothing about steps inside.
                gain = float(np.minimum(raised - best, 1.0).mean())
            best = raised
        gains[Operator.of(candidate)].append(gain)
    return gains
