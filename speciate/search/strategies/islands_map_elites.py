"""Islands of MAP-Elites archives as in FunSearch, AlphaEvolve and OpenEvolve, on reward vectors.

Sources: Romera-Paredes et al. 2024 (FunSearch, Nature 625: independently evolving islands); Novikov et al. 2025
(AlphaEvolve, arXiv 2506.13131, section 2.5: MAP-Elites and islands); Mouret and Clune 2015 (MAP-Elites, arXiv
1504.04909). The sources rank by one number. Here an island keeps the best under every weighting of a lattice and, for
every program shape, the best under the island's own weighting; parents are selected by ε-lexicase.
"""

from typing import Annotated, ClassVar, Final

import numpy as np
from pydantic import AfterValidator, Field

from speciate.domain.arrays import FloatArray
from speciate.domain.policy import PolicyRole
from speciate.search.archive import Bid, ParentPool, draw_diverse, pool_of, trade_off_bids
from speciate.search.epochs import IslandStrategy, Resets
from speciate.search.features import Feature, feature_cell
from speciate.search.islands import IslandBatch, Rank, island_weights, sends_migrants
from speciate.search.puct import puct_row
from speciate.search.selection import SELECTIONS, epsilon_lexicase
from speciate.search.strategy import EvolutionConfig, Placement, PopulationView, Selection, first_selection

_PUCT: Final = "puct"
_OPERATORS: Final = (*SELECTIONS, _PUCT)


def _known(name: str) -> str:
    if name not in _OPERATORS:
        raise ValueError(f"unknown selection {name!r}")
    return name


def _distinct(features: tuple[Feature, ...]) -> tuple[Feature, ...]:
    if len(set(features)) < len(features):
        raise ValueError("a feature is repeated")
    return features


class IslandsMapElitesConfig(EvolutionConfig):
    """Options of ``islands_map_elites``. An island holds at most ``25 + bins ** len(features)`` elites."""

    islands: int = Field(default=4, ge=1, le=64)
    """Number of islands; batches take them in turn."""
    selection: Annotated[str, AfterValidator(_known), Field(json_schema_extra={"enum": list(_OPERATORS)})] = Field(
        default="epsilon_lexicase"
    )
    """Operator that selects parents among an island's elites; puct reads the whole run."""
    puct_constant: float = Field(default=1.0, ge=0, le=100)
    """Weight of rarely selected parents in puct; 0 for the best child only."""
    exploration: float = Field(default=0.2, ge=0, le=1)
    """Probability of a uniformly drawn parent, as in MAP-Elites."""
    crossover: float = Field(default=0.3, ge=0, le=1)
    """Probability of a second parent to recombine with."""
    inspirations: int = Field(default=2, ge=0, le=16)
    """Further programs to show: the best, or of several objectives the front by distance in rewards."""
    migration_interval: int = Field(default=4, ge=0, le=100_000)
    """Batches of an island between two migrations; 0 for none."""
    migrants: int = Field(default=3, ge=1, le=64)
    """Elites copied to the next island per migration."""
    features: Annotated[tuple[Feature, ...], AfterValidator(_distinct)] = Field(
        default=(Feature.LENGTH, Feature.NESTING), max_length=3
    )
    """Features that define a program's cell; empty for trade-off cells only."""
    bins: int = Field(default=8, ge=1, le=16)
    """Bins of each feature."""
    reset_interval: int = Field(default=0, ge=0, le=100_000)
    """Batches of an island between two resets of the weakest; 0 for none."""
    resets: int = Field(default=2, ge=1, le=63)
    """Weakest islands to reset; one is always spared."""
    founders: int = Field(default=5, ge=1, le=64)
    """Diverse elites that found a reset island."""
    seeding: float = Field(default=0.5, ge=0, le=1)
    """Share of an empty island's first children with parents from the previous island."""


class IslandsMapElites(IslandStrategy):
    """Islands × (trade-off cells + feature cells), with migration around a ring and resets."""

    Config: ClassVar[type[EvolutionConfig]] = IslandsMapElitesConfig
    config: IslandsMapElitesConfig

    def __init__(self, config: IslandsMapElitesConfig) -> None:
        super().__init__(config)
        # PUCT rates parents, which migrants are not.
        self._choose = SELECTIONS.get(config.selection, epsilon_lexicase)
        self._resets = Resets(config.islands, config.reset_interval, config.resets, config.founders)

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        """Select on the island in turn; an empty island starts from the seed program or from the previous island.

        If every island started from scratch, four of them would spend 64 evaluations before the first change.
        """
        island = self._resets.island_of(view)
        table = self._resets.living(view.elites(island))
        if not len(table) and island > 0 and rng.random() < self.config.seeding:
            table = self._resets.living(view.elites(island - 1))
        if not len(table):
            return first_selection(view, island)
        pool = pool_of(view.problem.space, table)
        rows = self._parents(view, pool, island_weights(view.problem, view.seed, island), rng)
        others = draw_diverse(pool, rows, self.config.inspirations, rng)
        numbers = pool.numbers
        return Selection(PolicyRole.MUTATE, island, tuple(numbers[rows].tolist()), tuple(numbers[others].tolist()))

    def maintain(self, view: PopulationView, rng: np.random.Generator) -> tuple[Placement, ...]:
        """Return the founders of reset islands, or migrants if the island in turn sends some."""
        if self._resets.due(view):
            return self._resets.reset(view)
        if not sends_migrants(view.batch, self.islands, self.config.migration_interval):
            return ()
        count = range(self.config.migrants)
        return self._resets.migrate(view, lambda points, weights: [self._choose(points, rng, weights) for _ in count])

    def _parents(
        self, view: PopulationView, pool: ParentPool, weights: FloatArray, rng: np.random.Generator
    ) -> list[int]:
        first = self._parent(view, pool, weights, rng)
        if len(pool) == 1 or rng.random() >= self.config.crossover:
            return [first]
        others = ParentPool(np.delete(pool.numbers, first), np.delete(pool.points, first, axis=0), pool.space)
        second = self._parent(view, others, weights, rng)
        return [first, second + (second >= first)]

    def _parent(self, view: PopulationView, pool: ParentPool, weights: FloatArray, rng: np.random.Generator) -> int:
        if rng.random() < self.config.exploration:
            return int(rng.integers(len(pool)))
        if self.config.selection == _PUCT:
            return puct_row(pool, view.family(), weights, view.taken, self.config.puct_constant, rng)
        return self._choose(pool.points, rng, weights)

    def _bids(self, view: PopulationView, batch: IslandBatch, rank: Rank) -> list[Bid]:
        cells = (feature_cell(c, view.problem, self.config.features, self.config.bins) for c in batch.candidates)
        shapes = [(cell, row, batch.scores[row]) for row, cell in enumerate(cells) if cell is not None]
        return [(cell, row, rank(score)) for cell, row, score in (*trade_off_bids(view.problem, batch.points), *shapes)]
