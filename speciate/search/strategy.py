"""The protocol every strategy obeys, and what it may see of a population.

A strategy is pure and stateless between calls: it sees a ``PopulationView``, draws from the ``rng`` it is handed and
returns values. Whatever it must remember is in the archive. That is why one strategy runs in a unit test, in one
process and on a hundred workers without a line of difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem
from speciate.domain.reward import FloatArray
from speciate.domain.values import Value

IntArray = NDArray[np.int64]


class StrategyConfig(Value):
    """Base of the options of a strategy; the defaults are those of the cited source."""


@dataclass(frozen=True, slots=True)
class EliteTable:
    """The archive of one island, one row for each occupied cell, in order of cell name.

    Attributes:
        numbers: Run-wide numbers of the candidates, shape (n,). One candidate may hold several cells.
        cells: Names of the cells, n of them.
        fitness: What the cell ranks by, shape (n,), higher is better; comparable only within a cell.
        rewards: Raw rewards in declared order, shape (n, d).
    """

    numbers: IntArray
    cells: tuple[str, ...]
    fitness: FloatArray
    rewards: FloatArray

    def __len__(self) -> int:
        return len(self.cells)

    @classmethod
    def of(cls, rows: Sequence[tuple[str, int, float, Sequence[float]]], dimensions: int) -> EliteTable:
        """Return the table of rows ``(cell, number, fitness, rewards)`` of vectors of ``dimensions`` components."""
        ordered = sorted(rows, key=lambda row: row[0])
        return cls(
            numbers=np.array([number for _, number, _, _ in ordered], dtype=np.int64),
            cells=tuple(cell for cell, _, _, _ in ordered),
            fitness=np.array([fitness for _, _, fitness, _ in ordered], dtype=np.float64),
            rewards=np.array([rewards for _, _, _, rewards in ordered], dtype=np.float64).reshape(-1, dimensions),
        )


class PopulationView(Protocol):
    """What a strategy may see of a run's population."""

    @property
    def problem(self) -> Problem:
        """The problem that is searched."""
        ...

    @property
    def seed(self) -> int:
        """Seed of the run, for choices that must be the same in every call (such as an island's weighting)."""
        ...

    @property
    def batch(self) -> int:
        """Ordinal of the batch that is being made, counted from 0: the clock of the search."""
        ...

    @property
    def seed_number(self) -> int | None:
        """Number of the seed program's candidate, or None when the problem has none."""
        ...

    def elites(self, island: int) -> EliteTable:
        """Return the archive of an island; empty for one that nothing has reached."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Who is shown to the policy for one prompt.

    Attributes:
        role: Whether the policy writes from scratch or changes a parent.
        island: Island that the children belong to.
        parents: Run-wide numbers; the first one is changed, the others are recombined with it.
        inspirations: Run-wide numbers of further programs to show.
    """

    role: PolicyRole
    island: int = 0
    parents: tuple[int, ...] = ()
    inspirations: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """A wish to put a candidate into a cell. The store grants it when the cell is empty or holds a lower fitness.

    Attributes:
        number: Run-wide number of the candidate.
        island: Island.
        cell: Name of the cell.
        fitness: What the cell ranks by, higher is better.
        rewards: Raw rewards in declared order, shape (d,).
    """

    number: int
    island: int
    cell: str
    fitness: float
    rewards: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Evaluated:
    """A candidate that has rewards and looks for its place.

    Attributes:
        number: Run-wide number.
        island: Island its parents came from.
        program: Program text.
        rewards: Raw rewards in declared order, shape (d,).
    """

    number: int
    island: int
    program: str
    rewards: tuple[float, ...]


class Strategy(Protocol):
    """One way to search. Implementations are built from their config and hold nothing else."""

    name: ClassVar[str]
    Config: ClassVar[type[StrategyConfig]]

    @property
    def islands(self) -> int:
        """Number of islands it uses, counted from 0."""
        ...

    def select(self, view: PopulationView, rng: np.random.Generator) -> Selection:
        """Choose parents and inspirations for one prompt. With an empty population: a selection to propose."""
        ...

    def place(self, view: PopulationView, candidates: Sequence[Evaluated]) -> tuple[Placement, ...]:
        """Return the cells that freshly evaluated candidates should enter. Draws no random numbers."""
        ...

    def maintain(self, view: PopulationView, rng: np.random.Generator) -> tuple[Placement, ...]:
        """Return what the archive needs besides new candidates (migration). Called once before every batch."""
        ...
