"""Best of n: independent samples, the baseline for every search at the same budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from speciate.domain.policy import PolicyRole
from speciate.search.archive import improvements, trade_off_bids
from speciate.search.strategy import Evaluated, Placement, PopulationView, Selection, StrategyConfig

_ISLAND = 0


class BestOfNConfig(StrategyConfig):
    """Options of ``best_of_n``: none."""


class BestOfN:
    """Always proposes. Samples are independent, so n of them estimate pass@n and best@n without bias.

    The archive records the best for every trade-off but is never selected from.
    """

    name: ClassVar[str] = "best_of_n"
    Config: ClassVar[type[StrategyConfig]] = BestOfNConfig

    def __init__(self, config: BestOfNConfig) -> None:
        self.config = config

    @property
    def islands(self) -> int:
        """One island, for the records."""
        return 1

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:  # noqa: ARG002 - the protocol's
        """Propose a program from scratch."""
        return Selection(PolicyRole.PROPOSE, _ISLAND)

    def place(self, view: PopulationView, candidates: Sequence[Evaluated]) -> tuple[Placement, ...]:
        """Return the trade-off cells in which a candidate beats the record."""
        if not candidates:
            return ()
        points = view.problem.space.normalise([candidate.rewards for candidate in candidates])
        bids = trade_off_bids(view.problem, points)
        return tuple(improvements(view.elites(_ISLAND), _ISLAND, bids, candidates))

    def maintain(self, view: PopulationView, rng: np.random.Generator) -> tuple[Placement, ...]:  # noqa: ARG002
        """Return nothing."""
        return ()
