"""Best of n: independent samples, the baseline for every search at the same budget."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from speciate.domain.candidate import Individual
from speciate.domain.policy import PolicyRole
from speciate.search.archive import improvements, trade_off_bids
from speciate.search.strategy import Placement, PopulationView, Selection, Strategy, StrategyConfig

_ISLAND = 0


class BestOfN(Strategy):
    """Always proposes. Samples are independent, so n of them estimate pass@n and best@n without bias.

    Only the causes of recent failures, which every prompt names, pass from one batch to later ones.

    The archive records the best for every trade-off but is never selected from.
    """

    Config: ClassVar[type[StrategyConfig]] = StrategyConfig
    changes_programs: ClassVar[bool] = False

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:  # noqa: ARG002 - the base class's signature
        return Selection(PolicyRole.PROPOSE, _ISLAND)

    def place(self, view: PopulationView, candidates: Sequence[Individual]) -> tuple[Placement, ...]:
        points = view.problem.space.normalise([candidate.vector for candidate in candidates])
        return tuple(improvements(view.elites(_ISLAND), _ISLAND, trade_off_bids(view.problem, points), candidates))
