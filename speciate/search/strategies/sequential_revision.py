"""Sequential revision: chains of answers, each a revision of the previous one with its feedback.

Sources: Madaan et al. 2023 (Self-Refine, arXiv 2303.17651); arXiv 2501.09891, section 4.1 (the baseline
Sequential-Revision+: independent answers first, then chains that revise them). Each chain has its own island. Its
latest
answer is in the cell ``@last``, whose fitness is the batch of the answer: the clock of the chain, which identifies late
answers of an older chain. Trade-off cells beside it keep the records and are never selected from.
"""

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar, Final, Self

import numpy as np
from pydantic import Field, model_validator

from speciate.domain.candidate import Individual
from speciate.domain.policy import PolicyRole
from speciate.search.archive import improvements, trade_off_bids
from speciate.search.cells import CLOCKED, weigh
from speciate.search.islands import by_island, island_weights
from speciate.search.strategy import EliteTable, Placement, PopulationView, Selection, Strategy, StrategyConfig

_LAST: Final = f"{CLOCKED}last"
# A better answer of an earlier batch enters this fraction of a batch after the current one.
_MOMENT: Final = 2.0**-10


class Acceptance(StrEnum):
    """Rule by which a revision becomes the latest answer of its chain."""

    NOT_WORSE = "not_worse"
    """Accept a revision that meets more targets, or as many and is at least as good under the chain's weighting;
    otherwise revise the same answer again."""
    ALWAYS = "always"
    """Accept every revision, as in the source; among drafts, the best."""


class SequentialRevisionConfig(StrategyConfig):
    """Options of ``sequential_revision``. A chain holds at most 26 elites."""

    chains: int = Field(default=2, ge=1, le=64)
    """Parallel chains; every prompt goes to one of them."""
    accept: Acceptance = Field(default=Acceptance.NOT_WORSE)
    """Revision to continue from: one that is not worse, or always the latest."""
    drafts: int = Field(default=3, ge=0, le=10_000)
    """First batches of a chain that write from scratch; the best answer is then revised."""
    length: int = Field(default=0, ge=0, le=1_000_000)
    """Batches of the run, more than `drafts`, after which a chain restarts; 0 for never."""

    @model_validator(mode="after")
    def _length_exceeds_drafts(self) -> Self:
        if 0 < self.length <= self.drafts:
            raise ValueError(f"length is {self.length}: expected 0 or more than drafts, {self.drafts}")
        return self


class SequentialRevision(Strategy):
    """Parallel chains that revise their latest answer with its feedback, with restarts."""

    Config: ClassVar[type[StrategyConfig]] = SequentialRevisionConfig
    config: SequentialRevisionConfig

    @property
    def islands(self) -> int:
        return self.config.chains

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        chain = int(rng.integers(self.config.chains))
        table = view.elites(chain)
        last = _last(table)
        beginning = self._beginning(view.batch, chain)
        if view.batch < beginning + self.config.drafts or last is None or table.fitness[last] < beginning:
            return Selection(PolicyRole.PROPOSE, chain)
        return Selection(PolicyRole.MUTATE, chain, parents=(int(table.numbers[last]),))

    def place(self, view: PopulationView, candidates: Sequence[Individual]) -> tuple[Placement, ...]:
        """Return the records, and the best answer of each chain's batch if it becomes the latest one."""
        placements: list[Placement] = []
        for chain, answers, points, scores in by_island(view, candidates):
            table = view.elites(chain)
            bids = trade_off_bids(view.problem, points)
            standing = view.problem.ranking.standing
            ranks = [(*standing(candidate.targets), score) for candidate, score in zip(answers, scores, strict=True)]
            row = ranks.index(max(ranks))
            time = self._time(view, chain, table, ranks[row])
            placements.extend(improvements(table, chain, [*bids, (_LAST, row, time)], answers))
        return tuple(placements)

    def _time(self, view: PopulationView, chain: int, table: EliteTable, rank: tuple[bool, int, float]) -> float:
        """Return the fitness at which an answer becomes the latest one; -inf if it does not."""
        last = _last(table)
        beginning = self._beginning(view.batch, chain)
        if last is None or table.fitness[last] < beginning:
            return float(view.batch)
        if self._beginning(math.floor(table.fitness[last]), chain) > beginning:
            return -math.inf  # a late answer of a chain that has restarted
        if self.config.accept is Acceptance.ALWAYS and view.batch >= beginning + self.config.drafts:
            return float(view.batch)
        weights = island_weights(view.problem, view.seed, chain)
        score = weigh(view.problem.space.normalise(table.rewards[[last]]), weights[None, :]).item()
        latest = (*view.problem.ranking.standing(view.problem.targets_met(table.rewards[last].tolist())), score)
        if rank < latest:
            return -math.inf
        if rank > latest:
            return max(float(view.batch), float(table.fitness[last]) + _MOMENT)
        return float(view.batch)

    def _beginning(self, batch: int, chain: int) -> int:
        """Return the first batch of a chain as of a batch; chains restart one after the other."""
        length = self.config.length
        if length == 0:
            return 0
        offset = chain * length // self.config.chains
        # A later chain restarts early for the first time; until then it begins with the run.
        return max(0, (batch + offset) // length * length - offset)


def _last(table: EliteTable) -> int | None:
    return table.cells.index(_LAST) if _LAST in table.cells else None
