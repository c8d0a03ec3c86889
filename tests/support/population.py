"""An in-memory population and synthetic problems for tests of strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from speciate.domain.candidate import Individual
from speciate.domain.objective import Direction, Objective, ObjectiveRole
from speciate.domain.policy import PolicyRole
from speciate.domain.problem import Problem, ProblemKind
from speciate.domain.target import Target
from speciate.search.strategy import EliteTable, Family, Placement


def evaluated(number: int, island: int, program: str, rewards: tuple[float, ...], targets: int = 0) -> Individual:
    """Return a scored candidate."""
    return Individual(number, program, rewards, island=island, targets=targets)


def vector_problem(
    k: int,
    *,
    minimised: bool = False,
    constrained: bool = False,
    weights: dict[str, float] | None = None,
    seed_program: str = "x = 0\n",
) -> Problem:
    """Return a problem with objectives ``r0`` to ``r{k-1}`` in [0, 1].

    Args:
        k: Number of objectives.
        minimised: True to minimise every second objective.
        constrained: True to add a component ``excess`` that must be at most 0.
        weights: Declared weights.
        seed_program: First member of the population.
    """
    directions = [Direction.MINIMIZE if minimised and i % 2 else Direction.MAXIMIZE for i in range(k)]
    objectives = [Objective(name=f"r{i}", direction=direction) for i, direction in enumerate(directions)]
    if constrained:
        objectives.append(Objective(name="excess", direction=Direction.MINIMIZE, role=ObjectiveRole.CONSTRAINT))
    return Problem(
        slug="vector",
        title="A vector of rewards",
        kind=ProblemKind.EVALUATOR,
        objectives=tuple(objectives),
        targets=(Target(name="top", rule="r0 >= 2", unlock=True),),
        weights=weights,
        seed_program=seed_program,
        evaluator="def evaluate(candidate, context):\n    raise SystemExit\n",
    )


def ladder_problem() -> Problem:
    """Return a ``vector_problem(3)`` with targets that random candidates meet: often, rarely and never."""
    rules = {"easy": "r0 >= 0.5", "hard": "r0 >= 0.7 and r1 >= 0.7 and r2 >= 0.7", "never": "r0 >= 9"}
    targets = tuple(Target(name=name, rule=rule, unlock=name == "hard") for name, rule in rules.items())
    return vector_problem(3).model_copy(update={"targets": targets})


def raw_rewards(problem: Problem, point: Sequence[float], excess: float = 0.0) -> tuple[float, ...]:
    """Return the raw rewards of a normalised point, shape (k,), in a ``vector_problem``."""
    space = problem.space
    raw = [1.0 - p if o.direction is Direction.MINIMIZE else p for p, o in zip(point, space.selected, strict=True)]
    return (*raw, excess) if len(space.objectives) > len(space.selected) else tuple(raw)


class ListView:
    """A ``PopulationView`` with the store's rule for accepting bids.

    Attributes:
        problem: The problem.
        seed: Seed of the run.
        batch: Number of the batch; advanced by the test.
        seed_number: Number of the seed program's candidate, or None.
        taken: Parents that the batch has selected.
        born: Number, first parent and rewards of every candidate, kept by the test.
        operators: Operators of the run with their shares.
        recent: The latest candidates, newest first, kept by the test.
    """

    def __init__(self, problem: Problem, *, seed: int = 0, batch: int = 0, seed_number: int | None = 1) -> None:
        self.problem = problem
        self.seed = seed
        self.batch = batch
        self.seed_number = seed_number
        self.seed_rewards: tuple[float, ...] | None = None
        self._held: dict[int, dict[str, Placement]] = {}
        self.taken: list[int] = []
        self.born: list[tuple[int, int, tuple[float, ...] | None]] = []
        self.operators: Mapping[PolicyRole, float] = {PolicyRole.MUTATE: 0.95, PolicyRole.PROPOSE: 0.05}
        self.recent: list[Individual] = []

    def latest(self) -> list[Individual]:
        """Return the candidates in ``recent``."""
        return self.recent

    def elites(self, island: int) -> EliteTable:
        """Return the archive of an island."""
        held = self._held.get(island, {}).values()
        return EliteTable.of(held, len(self.problem.objectives))

    def family(self) -> Family:
        """Return the candidates in ``born``, two of one prompt."""
        return Family.of(self.born, len(self.problem.objectives), 2)

    def grant(self, bids: Sequence[Placement]) -> int:
        """Accept bids for cells that are empty or hold a lower fitness; return their number."""
        granted = 0
        for bid in bids:
            cells = self._held.setdefault(bid.island, {})
            if bid.cell not in cells or bid.fitness > cells[bid.cell].fitness:
                cells[bid.cell] = bid
                granted += 1
        return granted

    def numbers(self) -> set[int]:
        """Return the numbers of all elites."""
        return {p.number for cells in self._held.values() for p in cells.values()}

    def size(self) -> int:
        """Return the number of occupied cells on all islands."""
        return sum(len(cells) for cells in self._held.values())

    def snapshot(self) -> dict[tuple[int, str], Placement]:
        """Return all occupied cells."""
        return {(island, cell): p for island, cells in self._held.items() for cell, p in cells.items()}


class SharedTables(ListView):
    """A ``ListView`` with cached read-only tables: writing to one is an error."""

    def __init__(self, problem: Problem, *, seed: int = 0, batch: int = 0, seed_number: int | None = 1) -> None:
        super().__init__(problem, seed=seed, batch=batch, seed_number=seed_number)
        self._tables: dict[int, EliteTable] = {}

    def elites(self, island: int) -> EliteTable:
        """Return the cached archive of an island."""
        if island not in self._tables:
            table = super().elites(island)
            for column in (table.numbers, table.fitness, table.rewards):
                column.setflags(write=False)
            self._tables[island] = table
        return self._tables[island]

    def grant(self, bids: Sequence[Placement]) -> int:
        """Accept bids and drop the cached tables."""
        self._tables.clear()
        return super().grant(bids)


def synthetic_batch(
    problem: Problem, first: int, count: int, island: int, rng: np.random.Generator, *, violate: bool = False
) -> list[Individual]:
    """Return candidates with random rewards and programs of random shape.

    Args:
        problem: A ``vector_problem``.
        first: Number of the first candidate.
        count: Number of candidates.
        island: Their island.
        rng: Draws rewards and programs.
        violate: True to make about half of them infeasible.
    """
    points = rng.random((count, len(problem.space.selected)))
    excesses = rng.random(count) * (rng.random(count) < 0.5) * violate
    return [
        evaluated(first + i, island, _program(rng), raw_rewards(problem, points[i].tolist(), float(excesses[i])))
        for i in range(count)
    ]


def _program(rng: np.random.Generator) -> str:
    depth, lines = int(rng.integers(1, 12)), int(rng.integers(1, 40))
    nest = "".join(f"{'    ' * level}if x > {level}:\n" for level in range(depth))
    return f"{nest}{'    ' * depth}x = 1\n" + "y = 2\n" * lines
