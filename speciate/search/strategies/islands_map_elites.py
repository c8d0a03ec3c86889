"""Islands of MAP-Elites archives, the shape of FunSearch, AlphaEvolve and OpenEvolve, on vectors of rewards.

Sources: Romera-Paredes et al. 2024 (FunSearch, Nature 625: islands that evolve apart); Novikov et al. 2025
(AlphaEvolve, arXiv 2506.13131, section 2.5: MAP-Elites and islands); Mouret and Clune 2015 (MAP-Elites, arXiv
1504.04909). Where they rank by one number, an island here keeps the best under every weighting of a lattice and, for
every shape of program, the best under a weighting of its own; parents are chosen by ε-lexicase.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import AfterValidator, Field

from speciate.domain.policy import PolicyRole
from speciate.domain.reward import FloatArray
from speciate.search.archive import Bid, ParentPool, draw_different, improvements, pool_of, trade_off_bids
from speciate.search.cells import weigh
from speciate.search.epochs import Resets
from speciate.search.features import Feature, feature_cell
from speciate.search.islands import copies, island_of, island_weights, next_island, sends_migrants
from speciate.search.selection import SELECTIONS
from speciate.search.strategy import Evaluated, Placement, PopulationView, Selection, StrategyConfig


def _known(name: str) -> str:
    if name not in SELECTIONS:
        raise ValueError(f"no selection is called {name!r}")
    return name


def _distinct(features: tuple[Feature, ...]) -> tuple[Feature, ...]:
    if len(set(features)) < len(features):
        raise ValueError("a feature is named twice")
    return features


class IslandsMapElitesConfig(StrategyConfig):
    """Options of ``islands_map_elites``. An island holds at most ``25 + bins ** len(features)`` elites."""

    islands: int = Field(default=4, ge=1, le=64, description="Number of islands; batches take them in turn.")
    selection: Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(SELECTIONS)})] = Field(
        default="epsilon_lexicase", description="How parents are chosen among the elites of an island."
    )
    exploration: float = Field(
        default=0.2, ge=0, le=1, description="Probability that a parent is any elite, as in MAP-Elites."
    )
    crossover: float = Field(default=0.3, ge=0, le=1, description="Probability of a second parent to recombine with.")
    inspirations: int = Field(
        default=2, ge=0, le=16, description="Further programs to show, drawn for their difference in rewards."
    )
    migration_interval: int = Field(
        default=4, ge=0, le=100_000, description="Batches of an island between two departures; 0 for no migration."
    )
    migrants: int = Field(default=3, ge=1, le=64, description="Elites that are copied to the next island at a time.")
    features: Annotated[tuple[Feature, ...], AfterValidator(_distinct)] = Field(
        default=(Feature.LENGTH, Feature.NESTING),
        max_length=3,
        description="What the shape of a program is measured by; empty for trade-off cells alone.",
    )
    bins: int = Field(default=8, ge=1, le=16, description="Bins of each feature.")
    reset_interval: int = Field(
        default=0, ge=0, le=100_000, description="Batches of an island between two resets of the weakest; 0 for never."
    )
    resets: int = Field(default=2, ge=1, le=63, description="Weakest islands that are reset; one is always spared.")
    founders: int = Field(default=5, ge=1, le=64, description="Diverse elites of all islands that found a new one.")
    settlers: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Share of an empty island's first children that descend from the island before it.",
    )


class IslandsMapElites:
    """Islands × (trade-off cells + feature cells), with migration around a ring and resets."""

    name: ClassVar[str] = "islands_map_elites"
    Config: ClassVar[type[StrategyConfig]] = IslandsMapElitesConfig

    def __init__(self, config: IslandsMapElitesConfig) -> None:
        self.config = config
        self._choose = SELECTIONS[config.selection]
        self._resets = Resets(config.islands, config.reset_interval, config.resets, config.founders)

    @property
    def islands(self) -> int:
        """Number of islands."""
        return self.config.islands

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        """Choose parents and inspirations on the island whose turn it is; an empty one begins from seed and settlers.

        Were every island to begin from nothing, four of them would spend 64 evaluations before the first change.
        """
        island = self._resets.island_of(view)
        table = self._resets.living(view.elites(island))
        if not len(table) and island > 0 and rng.random() < self.config.settlers:
            table = self._resets.living(view.elites(island - 1))
        if not len(table):
            return _beginning(view, island)
        pool = pool_of(view.problem.space, table)
        weights = island_weights(view.problem, view.seed, island)
        rows = self._parents(pool, weights, rng)
        others = draw_different(pool, rows, self.config.inspirations, rng)
        return Selection(
            PolicyRole.MUTATE,
            island,
            parents=tuple(pool.numbers[rows].tolist()),
            inspirations=tuple(pool.numbers[others].tolist()),
        )

    def place(self, view: PopulationView, candidates: Sequence[Evaluated]) -> tuple[Placement, ...]:
        """Return the cells in which a candidate beats what its island holds."""
        placements: list[Placement] = []
        for island in sorted({candidate.island for candidate in candidates}):
            table = view.elites(island)
            if self._resets.too_late(view, table):
                continue
            own = [candidate for candidate in candidates if candidate.island == island]
            points = view.problem.space.normalise([candidate.rewards for candidate in own])
            bids = [*trade_off_bids(view.problem, points), *self._feature_bids(view, island, own, points)]
            rank = self._resets.rank(table)
            aged = [(cell, row, rank(score)) for cell, row, score in bids]
            placements.extend(improvements(table, island, aged, own))
        return tuple(placements)

    def maintain(self, view: PopulationView, rng: np.random.Generator) -> tuple[Placement, ...]:
        """Return founders of islands that start anew, or copies of elites when it is an island's turn to send some."""
        if self._resets.due(view):
            return self._resets.reset(view)
        if not sends_migrants(view.batch, self.islands, self.config.migration_interval):
            return ()
        source = island_of(view.batch, self.islands)
        table = self._resets.living(view.elites(source))
        if not len(table):
            return ()
        pool = pool_of(view.problem.space, table)
        weights = island_weights(view.problem, view.seed, source)
        chosen = [self._choose(pool.points, rng, weights) for _ in range(self.config.migrants)]
        target = next_island(source, self.islands)
        return copies(view, table, target, pool.numbers[chosen], self._resets.rank(view.elites(target)))

    def _parents(self, pool: ParentPool, weights: FloatArray, rng: np.random.Generator) -> list[int]:
        first = self._parent(pool.points, weights, rng)
        if len(pool) == 1 or rng.random() >= self.config.crossover:
            return [first]
        second = self._parent(np.delete(pool.points, first, axis=0), weights, rng)
        return [first, second + (second >= first)]

    def _parent(self, points: FloatArray, weights: FloatArray, rng: np.random.Generator) -> int:
        if rng.random() < self.config.exploration:
            return int(rng.integers(len(points)))
        return self._choose(points, rng, weights)

    def _feature_bids(
        self, view: PopulationView, island: int, candidates: Sequence[Evaluated], points: FloatArray
    ) -> list[Bid]:
        weights = island_weights(view.problem, view.seed, island)
        fitness = weigh(points, weights[None, :])[:, 0].tolist()
        cells = (feature_cell(c, view.problem, self.config.features, self.config.bins) for c in candidates)
        return [(cell, row, fitness[row]) for row, cell in enumerate(cells) if cell is not None]


def _beginning(view: PopulationView, island: int) -> Selection:
    if view.seed_number is None:
        return Selection(PolicyRole.PROPOSE, island)
    return Selection(PolicyRole.MUTATE, island, parents=(view.seed_number,))
