"""Best of n: independent samples. The floor that every search has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from speciate.domain.policy import PolicyRole
from speciate.search.archive import improvements
from speciate.search.strategy import Evaluated, Placement, PopulationView, Selection, StrategyConfig


class BestOfNConfig(StrategyConfig):
    """Best of n has no options."""


class BestOfN:
    """Asks for every candidate from scratch; the archive only remembers the best for each trade-off."""

    name: ClassVar[str] = "best_of_n"
    Config: ClassVar[type[StrategyConfig]] = BestOfNConfig

    def __init__(self, config: BestOfNConfig) -> None:
        self.config = config

    @property
    def islands(self) -> int:
        """One."""
        return 1

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:  # noqa: ARG002
        """Ask for a proposal; nothing that was found before has an influence."""
        return Selection(PolicyRole.PROPOSE)

    def place(self, view: PopulationView, candidates: Sequence[Evaluated]) -> tuple[Placement, ...]:
        """Keep the best for each trade-off."""
        return improvements(view, candidates)

    def maintain(self, view: PopulationView, rng: np.random.Generator) -> tuple[Placement, ...]:  # noqa: ARG002
        """Nothing needs maintenance."""
        return ()
