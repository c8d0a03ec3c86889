"""Sequential revision: chains of answers, each a revision of the last one with its feedback.

Sources: Madaan et al. 2023 (Self-Refine, arXiv 2303.17651); arXiv 2501.09891, section 4.1 (the baseline
Sequential-Revision+: independent answers first, then chains that revise them). A chain lives on an island of its own.
Its last answer is the cell ``@last``, whose fitness is the batch it came from: the clock of the chain, by which a
late answer of an older one is known. Trade-off cells beside it keep the records and are never selected from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar, Final, Self

import numpy as np
from pydantic import Field, model_validator

from speciate.domain.policy import PolicyRole
from speciate.search.archive import improvements, trade_off_bids
from speciate.search.cells import CLOCKED, weigh
from speciate.search.islands import island_weights
from speciate.search.strategy import EliteTable, Evaluated, Placement, PopulationView, Selection, StrategyConfig

_LAST: Final = f"{CLOCKED}last"
# An answer of an earlier batch that is better than the last one follows it by this part of a batch.
_MOMENT: Final = 2.0**-10


class Acceptance(StrEnum):
    """Which revision becomes the last answer of its chain."""

    NOT_WORSE = "not_worse"
    """One that is at least as good under the chain's weighting; after a worse one, the same answer is revised anew."""
    ALWAYS = "always"
    """Every one, as in the source; of drafts the best all the same."""


class SequentialRevisionConfig(StrategyConfig):
    """Options of ``sequential_revision``. A chain holds at most 26 elites."""

    chains: int = Field(default=2, ge=1, le=64, description="Chains side by side; every prompt goes to one of them.")
    accept: Acceptance = Field(
        default=Acceptance.NOT_WORSE,
        description="Which revision becomes the last answer: one that is not worse, or always the newest.",
    )
    drafts: int = Field(
        default=3,
        ge=0,
        le=10_000,
        description="Batches at the beginning of a chain that write from scratch; the best answer is then revised.",
    )
    length: int = Field(
        default=0,
        ge=0,
        le=1_000_000,
        description="Batches of the run, more than `drafts`, after which a chain starts from scratch; 0 for never.",
    )

    @model_validator(mode="after")
    def _chains_get_to_revise(self) -> Self:
        if 0 < self.length <= self.drafts:
            raise ValueError(f"length is {self.length}: expected 0 or more than drafts, {self.drafts}")
        return self


class SequentialRevision:
    """Chains that revise their last answer with its feedback, side by side, with restarts."""

    name: ClassVar[str] = "sequential_revision"
    Config: ClassVar[type[StrategyConfig]] = SequentialRevisionConfig

    def __init__(self, config: SequentialRevisionConfig) -> None:
        self.config = config

    @property
    def islands(self) -> int:
        """Number of chains: each has an island of its own."""
        return self.config.chains

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        """Draw a chain; revise its last answer, or draft its first one."""
        chain = int(rng.integers(self.config.chains))
        table = view.elites(chain)
        last = _last(table)
        beginning = self._beginning(view.batch, chain)
        if view.batch < beginning + self.config.drafts or last is None or table.fitness[last] < beginning:
            return Selection(PolicyRole.PROPOSE, chain)
        return Selection(PolicyRole.MUTATE, chain, parents=(int(table.numbers[last]),))

    def place(self, view: PopulationView, candidates: Sequence[Evaluated]) -> tuple[Placement, ...]:
        """Return the records, and the best answer of each chain's batch where it becomes the last one."""
        placements: list[Placement] = []
        for chain in sorted({candidate.island for candidate in candidates}):
            own = [candidate for candidate in candidates if candidate.island == chain]
            points = view.problem.space.normalise([candidate.rewards for candidate in own])
            weights = island_weights(view.problem, view.seed, chain)
            scores = weigh(points, weights[None, :])[:, 0].tolist()
            table = view.elites(chain)
            bids = trade_off_bids(view.problem, points)
            row = scores.index(max(scores))
            time = self._time(view, chain, table, scores[row])
            placements.extend(improvements(table, chain, [*bids, (_LAST, row, time)], own))
        return tuple(placements)

    def maintain(self, view: PopulationView, rng: np.random.Generator) -> tuple[Placement, ...]:  # noqa: ARG002
        """Return nothing: chains know nothing of each other."""
        return ()

    def _time(self, view: PopulationView, chain: int, table: EliteTable, score: float) -> float:
        """Return the fitness at which an answer enters as the last one; -inf where it does not."""
        last = _last(table)
        beginning = self._beginning(view.batch, chain)
        if last is None or table.fitness[last] < beginning:
            return float(view.batch)
        if self._beginning(math.floor(table.fitness[last]), chain) > beginning:
            return -math.inf  # a late answer of a chain that has begun anew
        if self.config.accept is Acceptance.ALWAYS and view.batch >= beginning + self.config.drafts:
            return float(view.batch)
        weights = island_weights(view.problem, view.seed, chain)
        held = weigh(view.problem.space.normalise(table.rewards[[last]]), weights[None, :]).item()
        if score < held:
            return -math.inf
        if score > held:
            return max(float(view.batch), float(table.fitness[last]) + _MOMENT)
        return float(view.batch)

    def _beginning(self, batch: int, chain: int) -> int:
        """Return the batch in which a chain began as it is in a batch; chains restart one after the other."""
        length = self.config.length
        if length == 0:
            return 0
        offset = chain * length // self.config.chains
        # The first restart of a later chain comes early; its beginning is that of the run all the same, drafts and all.
        return max(0, (batch + offset) // length * length - offset)


def _last(table: EliteTable) -> int | None:
    return table.cells.index(_LAST) if _LAST in table.cells else None
