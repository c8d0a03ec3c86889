"""Mind Evolution: generations of recombination and refinement on islands.

Source: Lee et al. 2025 (Mind Evolution, arXiv 2501.09891, section 3). A generation of an island is ``turns`` of its
batches. The first one recombines 0 to ``parents`` parents drawn by Boltzmann selection. The others refine one program
with its feedback: a child of this generation or, if those are much worse, an older program. Then the best migrate to
the next island of the ring, and every few generations the weakest islands are reset from diverse elites of all.

Deviations from the source:

- A population is a bounded archive: the best under every weighting of a lattice, and the best of ``population`` random
  classes of programs under the island's own weighting.
- Generations are counted in batches instead of separated by barriers, so that no worker waits.
- Founders are chosen by distance in rewards, not by a model.
- Critic and author share one prompt, with one call per turn.
- The source has 4 islands and 4 turns; with a few hundred candidates, half of each leaves time for more generations.
"""

import zlib
from typing import ClassVar, Final

import numpy as np
from pydantic import Field

from speciate.domain.arrays import FloatArray
from speciate.domain.policy import PolicyRole
from speciate.search.archive import Bid, ParentPool, concatenated, pool_of, rows_of, trade_off_bids
from speciate.search.cells import CLOCKED
from speciate.search.epochs import IslandStrategy, Resets, ranked
from speciate.search.islands import IslandBatch, Rank, island_weights, sends_migrants
from speciate.search.selection import softmax
from speciate.search.strategy import EliteTable, EvolutionConfig, Placement, PopulationView, Selection

_TURN: Final = f"{CLOCKED}turn"


class MindEvolutionConfig(EvolutionConfig):
    """Options of ``mind_evolution``; an island holds at most ``25 + population + conversations`` elites."""

    islands: int = Field(default=2, ge=1, le=64)
    """Number of islands; batches take them in turn."""
    population: int = Field(default=20, ge=1, le=256)
    """Random classes of programs of which an island keeps the best."""
    conversations: int = Field(default=5, ge=1, le=64)
    """Latest children that the next turn may refine."""
    turns: int = Field(default=2, ge=1, le=64)
    """Batches of an island per generation; 1 for no refinement."""
    parents: int = Field(default=5, ge=1, le=16)
    """Most parents; their number is drawn uniformly from 0 (from scratch)."""
    temperature: float = Field(default=0.02, gt=0, le=100)
    """Temperature of the Boltzmann selection, in units of normalised reward."""
    migrants: int = Field(default=5, ge=0, le=64)
    """Best elites copied to the next island per generation."""
    reset_interval: int = Field(default=3, ge=0, le=100_000)
    """Generations between resets; 0 for none."""
    resets: int = Field(default=1, ge=1, le=63)
    """Weakest islands to reset; one is always spared."""
    founders: int = Field(default=5, ge=1, le=64)
    """Diverse elites that found a reset island."""


class MindEvolution(IslandStrategy):
    """Generations of recombination of 0 to 5 parents and of refinement turns, on islands with migration and resets."""

    Config: ClassVar[type[EvolutionConfig]] = MindEvolutionConfig
    config: MindEvolutionConfig

    def __init__(self, config: MindEvolutionConfig) -> None:
        super().__init__(config)
        self._resets = Resets(config.islands, config.reset_interval * config.turns, config.resets, config.founders)

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        """Refine a child of the previous turn, or recombine parents of the island in turn."""
        island = self._resets.island_of(view)
        table = view.elites(island)
        weights = island_weights(view.problem, view.seed, island)
        fresh, living = self._fresh(view, table), self._resets.living(table)
        if len(fresh):
            pool = pool_of(view.problem.space, concatenated([fresh, living]))
            child = softmax(pool.points, rng, weights, self.config.temperature)
            return Selection(PolicyRole.MUTATE, island, parents=(int(pool.numbers[child]),))
        if not len(living):
            return Selection(PolicyRole.PROPOSE, island)
        pool = pool_of(view.problem.space, living)
        parents = self._parents(pool, weights, rng)
        return Selection(PolicyRole.MUTATE if parents else PolicyRole.PROPOSE, island, parents)

    def _bids(self, view: PopulationView, batch: IslandBatch, rank: Rank) -> list[Bid]:
        """Return the bids for the records and the classes, and those of the children of this turn."""
        hashes = [zlib.crc32(candidate.program.encode(errors="surrogatepass")) for candidate in batch.candidates]
        bids = [(cell, row, rank(score)) for cell, row, score in trade_off_bids(view.problem, batch.points)]
        for row, (score, number) in enumerate(zip(batch.scores, hashes, strict=True)):
            bids.append((f"class:{number % self.config.population}", row, rank(score)))
            bids.append((f"{_TURN}{number % self.config.conversations}", row, ranked(score, view.batch)))
        return bids

    def maintain(self, view: PopulationView, rng: np.random.Generator) -> tuple[Placement, ...]:  # noqa: ARG002
        """Return the founders of reset islands, or the migrants of an island whose generation has ended."""
        if self._resets.due(view):
            return self._resets.reset(view)
        if not self.config.migrants or not sends_migrants(view.batch, self.islands, self.config.turns):
            return ()
        return self._resets.migrate(
            view, lambda points, w: np.argsort(-(points @ w), kind="stable")[: self.config.migrants].tolist()
        )

    def _fresh(self, view: PopulationView, table: EliteTable) -> EliteTable:
        """Return the children of this generation that may be refined: none in its first turn."""
        turn = view.batch // self.islands
        begin = (turn - turn % self.config.turns) * self.islands
        rows = zip(table.cells, table.fitness.tolist(), strict=True)
        return rows_of(table, np.array([c.startswith(_TURN) and begin <= time < view.batch for c, time in rows], bool))

    def _parents(self, pool: ParentPool, weights: FloatArray, rng: np.random.Generator) -> tuple[int, ...]:
        count = min(int(rng.integers(self.config.parents + 1)), len(pool))
        rows = np.arange(len(pool))
        parents: list[int] = []
        while len(parents) < count:
            at = softmax(pool.points[rows], rng, weights, self.config.temperature)
            parents.append(int(pool.numbers[rows[at]]))
            rows = np.delete(rows, at)
        return tuple(parents)
