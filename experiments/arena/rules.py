"""Simple rules as strategies: what a search has to beat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from speciate.domain.candidate import Individual
from speciate.domain.policy import PolicyRole
from speciate.search.archive import improvements, pool_of, trade_off_bids
from speciate.search.strategies import STRATEGIES
from speciate.search.strategy import Placement, PopulationView, Selection, Strategy, StrategyConfig, first_selection


class GreedyConfig(StrategyConfig):
    """Options of ``greedy``."""

    explore: float = Field(default=0.0, ge=0, le=1)
    """Probability of any elite as parent instead of the best."""


class Greedy(Strategy):
    """Change the best program by the mean of the objectives, or at times any elite."""

    name: ClassVar[str] = "greedy"
    Config: ClassVar[type[StrategyConfig]] = GreedyConfig
    config: GreedyConfig

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        table = view.elites(0)
        if not len(table):
            return first_selection(view, 0)
        pool = pool_of(view.problem.space, table)
        row = int(pool.points.mean(axis=1).argmax())
        if rng.random() < self.config.explore:
            row = int(rng.integers(len(pool)))
        return Selection(PolicyRole.MUTATE, 0, (int(pool.numbers[row]),))

    def place(self, view: PopulationView, candidates: Sequence[Individual]) -> tuple[Placement, ...]:
        points = view.problem.space.normalise([candidate.vector for candidate in candidates])
        return tuple(improvements(view.elites(0), 0, trade_off_bids(view.problem, points), candidates))


STRATEGIES.setdefault(Greedy.name, Greedy)
