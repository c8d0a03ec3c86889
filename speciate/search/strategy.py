"""The base class of search strategies, and their read-only view of a population.

A strategy is pure and stateless between calls: it reads a ``PopulationView``, draws from the given ``rng`` and returns
values. Its only memory is the archive. The same strategy therefore runs in a unit test, in one process and on a hundred
workers.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from pydantic import Field

from speciate.domain.arrays import FloatArray, IntArray
from speciate.domain.candidate import Individual
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.values import Value


class StrategyConfig(Value):
    """Base of strategy options; defaults are those of the cited source."""


class EvolutionConfig(StrategyConfig):
    """Base of the options of strategies that select parents from an archive."""

    toward_targets: float = Field(default=0.25, ge=0, le=1)
    """Probability of a parent near an unmet target instead."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A bid for a cell. The store accepts it if the cell is empty or holds a lower fitness."""

    number: int
    island: int
    cell: str
    fitness: float  # fitness in the cell, higher is better
    rewards: tuple[float, ...]  # raw rewards in declared order, shape (d,); see ``EliteTable``
    error: tuple[float, ...] = ()  # their standard errors, shape (d,); empty without noise
    evaluations: int = 1  # of which they are the mean


@dataclass(frozen=True, slots=True)
class EliteTable:
    """The archive of one island: one row per occupied cell, sorted by cell name."""

    numbers: IntArray  # numbers of the candidates in the run, shape (n,). A candidate may hold several cells.
    cells: tuple[str, ...]
    fitness: FloatArray  # fitness in the cell, shape (n,), higher is better; comparable within a cell only
    # Raw rewards in declared order, shape (n, d); of problems with noise the bounds that ``search.noise`` describes.
    rewards: FloatArray
    errors: FloatArray  # their standard errors, shape (n, d); 0 without noise
    evaluations: IntArray  # of which they are the mean, shape (n,)
    revised: bool = False  # true while all elites bid again, so that no fitness of a cell without a clock holds

    def __len__(self) -> int:
        return len(self.cells)

    @classmethod
    def of(cls, elites: Sequence[Placement], dimensions: int) -> "EliteTable":
        elites = sorted(elites, key=lambda each: each.cell)
        exact = (0.0,) * dimensions
        return cls(
            numbers=np.array([each.number for each in elites], dtype=np.int64),
            cells=tuple(each.cell for each in elites),
            fitness=np.array([each.fitness for each in elites], dtype=np.float64),
            rewards=np.array([each.rewards for each in elites], dtype=np.float64).reshape(-1, dimensions),
            errors=np.array([each.error or exact for each in elites], dtype=np.float64).reshape(-1, dimensions),
            evaluations=np.array([each.evaluations for each in elites], dtype=np.int64),
        )


@dataclass(frozen=True, slots=True)
class Family:
    """All candidates of a run with their first parents."""

    numbers: IntArray  # numbers in the run, shape (n,), ascending; a parent's is lower than its children's
    parents: IntArray  # number of the first parent, 0 for none, shape (n,)
    rewards: FloatArray  # raw rewards in declared order, NaN without a score, shape (n, d)
    group: int  # children of one prompt

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, Sequence[float] | None]], dimensions: int, group: int) -> "Family":
        missing = (float("nan"),) * dimensions
        return cls(
            numbers=np.array([number for number, _, _ in rows], dtype=np.int64),
            parents=np.array([parent for _, parent, _ in rows], dtype=np.int64),
            rewards=np.array([missing if r is None else r for _, _, r in rows], np.float64).reshape(-1, dimensions),
            group=group,
        )


class PopulationView(Protocol):
    problem: Problem
    seed: int
    """Seed of the run, for choices that stay the same in every call (such as an island's weighting)."""
    batch: int
    """Number of the current batch, from 0: the clock of the search."""
    taken: list[int]
    """Numbers of the parents that this batch has selected so far."""

    @property
    def operators(self) -> Mapping[PolicyRole, float]:
        """Operators that the next prompt may use, with their shares before anything is known of their success.

        The shares sum to 1; that of ``MUTATE`` is positive.
        """

    @property
    def seed_number(self) -> int | None:
        """Number of the first seed program with rewards, 1 if all failed, or None without a seed program."""

    @property
    def seed_rewards(self) -> Sequence[float] | None:
        """Raw rewards of the first seed program with rewards, shape (d,); None if there is none."""

    def elites(self, island: int) -> EliteTable: ...

    def latest(self) -> Sequence[Individual]:
        """Return the latest candidates without their texts, a window of bounded size, newest first."""

    def family(self) -> Family:
        """Return all candidates of the run; its cost grows with their number."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Programs to show in one prompt."""

    role: PolicyRole  # write from scratch, or change a parent
    island: int = 0  # island of the children
    parents: tuple[int, ...] = ()  # numbers of the parents; the first is changed, the others are recombined with it
    inspirations: tuple[int, ...] = ()  # numbers of further programs to show


def first_selection(view: PopulationView, island: int) -> Selection:
    """Return the selection on an empty island: change the seed program, or write from scratch without one."""
    if view.seed_number is None:
        return Selection(PolicyRole.PROPOSE, island)
    return Selection(PolicyRole.MUTATE, island, parents=(view.seed_number,))


class Strategy(ABC):
    """Base of the search strategies, which hold their config and no other state."""

    Config: ClassVar[type[StrategyConfig]]
    changes_programs: ClassVar[bool] = True
    """False if every candidate is written from scratch."""
    config: StrategyConfig

    def __init__(self, config: StrategyConfig) -> None:
        self.config = config

    @property
    def islands(self) -> int:
        return 1

    @abstractmethod
    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        """Select parents and inspirations for one prompt. With an empty population: propose from scratch."""

    @abstractmethod
    def place(self, view: PopulationView, candidates: Sequence[Individual]) -> tuple[Placement, ...]:
        """Return the bids of new candidates: one at least, all of them with rewards. Draws no random numbers."""

    def living(self, table: EliteTable) -> EliteTable:
        """Return the elites of an island's archive that still compete (default all)."""
        return table

    def in_flight(self, most: int, evaluated: int) -> int:  # noqa: ARG002
        """Return the answers that a run should wait for at once, 1 to ``most``, after ``evaluated`` candidates."""
        return most

    def maintain(self, view: PopulationView, rng: np.random.Generator) -> tuple[Placement, ...]:  # noqa: ARG002
        """Return further placements, such as migrants (default none). Called once before every batch."""
        return ()
