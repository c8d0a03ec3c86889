"""Generate mazes with one exit, two treasures in opposite corners, and never enough steps for both.

They follow the maze of "Vector Policy Optimization" (arXiv 2605.22817, appendix on tasks): a grid with walls from
Prim's algorithm and some further openings; start and exit at the ends of a random diagonal, gold around one of the
other corners and diamonds around the other, lava in between. A route is rewarded for reaching the exit, for the shares
of gold and diamonds that it collects, and for avoiding lava; all rewards are zero unless it reaches the exit within the
budget. The budget fits either detour and never both: the objectives conflict by construction, so no single route is
best. This holds for routes that avoid lava; in 7 of 60 small mazes a route through lava, which is rewarded less,
collects everything.
"""

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import product
from typing import Final

import numpy as np

from speciate.domain.errors import InvalidInputError
from speciate.training.tasks.maze_score import STEPS, score_route

Cell = tuple[int, int]

REWARDS: Final = ("completion", "gold", "diamond", "avoid_lava")
"""The k = 4 components of the reward vector, each in [0, 1], higher is better."""

_NEAR: Final = 2
_ATTEMPTS: Final = 20_000


@dataclass(frozen=True, slots=True)
class MazeSize:
    """Parameters of mazes; ranges include both ends."""

    side: int = 9
    """Cells along an edge including walls; odd."""
    openings: tuple[int, int] = (18, 28)
    items: tuple[int, int] = (3, 5)
    """Pieces of gold, and as many diamonds."""
    lava: tuple[int, int] = (3, 5)
    slack: int = 7
    """Steps of the budget beyond the longer of the two detours."""
    longest: int = 80


PAPER: Final = MazeSize()

SMALL: Final = MazeSize(side=7, openings=(3, 8), items=(2, 4), lava=(2, 3), slack=5, longest=23)
"""Mazes for policies of a third of a million parameters."""


@dataclass(frozen=True)
class Maze:
    side: int
    open: frozenset[Cell]
    """Walkable cells, including lava."""
    start: Cell
    exit: Cell
    gold: frozenset[Cell]
    diamonds: frozenset[Cell]
    lava: frozenset[Cell]
    budget: int

    @cached_property
    def neighbours(self) -> dict[Cell, tuple[Cell, ...]]:
        return {
            cell: tuple(beside for r, c in STEPS if (beside := (cell[0] + r, cell[1] + c)) in self.open)
            for cell in self.open
        }

    def score(self, route: Sequence[Cell]) -> tuple[float, ...]:
        """Return the rewards of a route from the start, in the order of ``REWARDS``.

        A route that leaves the maze, jumps, passes a wall, exceeds the budget or does not end at the exit has zeros.
        """
        rewards = score_route(self.rows, self.budget, route)
        return tuple(rewards[name] for name in REWARDS)

    def shortest(self, goals: frozenset[Cell], *, within: int) -> int | None:
        """Return the steps of the shortest route to the exit through given cells; None beyond the limit."""
        bits = {cell: 1 << i for i, cell in enumerate(goals)}
        ahead = {
            cell: [(beside, bits.get(beside, 0)) for beside in around if beside not in self.lava]
            for cell, around in self.neighbours.items()
        }
        front = seen = {(self.start, bits.get(self.start, 0))}
        for steps in range(within + 1):
            if (self.exit, (1 << len(bits)) - 1) in front:
                return steps
            front = {(beside, have | bit) for cell, have in front for beside, bit in ahead[cell]} - seen
            seen = seen | front
        return None

    def shortest_route(
        self, goals: frozenset[Cell], *, avoid_lava: bool = True, rng: np.random.Generator | None = None
    ) -> list[Cell] | None:
        bits = {cell: 1 << i for i, cell in enumerate(sorted(goals))}
        begin = (self.start, bits.get(self.start, 0))
        seen, queue = {begin}, deque([(*begin, [self.start])])
        while queue:
            cell, have, route = queue.popleft()
            if cell == self.exit and have == (1 << len(bits)) - 1:
                return route
            around = self.neighbours[cell]
            for i in range(len(around)) if rng is None else rng.permutation(len(around)):
                step = (around[i], have | bits.get(around[i], 0))
                if not (avoid_lava and around[i] in self.lava) and step not in seen:
                    seen.add(step)
                    queue.append((*step, [*route, around[i]]))
        return None

    @cached_property
    def rows(self) -> tuple[str, ...]:
        """The maze as text: # wall, . open, S start, E exit, G gold, D diamond, L lava."""
        marks = {self.start: "S", self.exit: "E"}
        for cells, mark in ((self.gold, "G"), (self.diamonds, "D"), (self.lava, "L")):
            marks |= dict.fromkeys(cells, mark)
        return tuple(
            "".join(marks.get((r, c), "." if (r, c) in self.open else "#") for c in range(self.side))
            for r in range(self.side)
        )


def make_maze(rng: np.random.Generator, size: MazeSize = PAPER) -> Maze:
    for _ in range(_ATTEMPTS):
        maze = _candidate(rng, size)
        if maze is not None:
            return maze
    raise InvalidInputError(
        f"none of {_ATTEMPTS} mazes of size {size} fits one detour and not both.",
        remedy="Choose a larger side, fewer openings or less slack.",
    )


def _candidate(rng: np.random.Generator, size: MazeSize) -> Maze | None:
    opened = _carve(rng, size)
    last = size.side - 1
    corners = [(0, 0), (0, last), (last, last), (last, 0)]
    turn = int(rng.integers(4))
    start, gold_corner, finish, diamond_corner = corners[turn:] + corners[:turn]
    if rng.random() < 0.5:
        gold_corner, diamond_corner = diamond_corner, gold_corner
    free = opened - {start, finish}
    count = int(rng.integers(size.items[0], size.items[1] + 1))
    gold = _pick(rng, free & _around(gold_corner, size.side), count)
    diamonds = _pick(rng, free & _around(diamond_corner, size.side), count)
    inside = free.difference(*(_around(corner, size.side) for corner in corners))
    lava = _pick(rng, inside, int(rng.integers(size.lava[0], size.lava[1] + 1)))
    if not gold or not diamonds or not lava:
        return None
    maze = Maze(size.side, opened, start, finish, gold, diamonds, lava, budget=0)
    budget = _budget(maze, size)
    return None if budget is None else replace(maze, budget=budget)


def _budget(maze: Maze, size: MazeSize) -> int | None:
    gold, diamonds = (maze.shortest(each, within=size.longest - size.slack) for each in (maze.gold, maze.diamonds))
    if gold is None or diamonds is None:
        return None
    budget = max(gold, diamonds) + size.slack
    return None if maze.shortest(maze.gold | maze.diamonds, within=budget) is not None else budget


def _carve(rng: np.random.Generator, size: MazeSize) -> frozenset[Cell]:
    """Return the open cells of a maze: rooms on even coordinates joined by Prim's algorithm, and further openings."""
    rooms = range(0, size.side, 2)
    joined: set[Cell] = {(int(rng.choice(rooms)), int(rng.choice(rooms)))}
    opened = set(joined)
    frontier = _beyond(next(iter(joined)), size.side)
    while frontier:
        wall, room = frontier.pop(int(rng.integers(len(frontier))))
        if room not in joined:
            joined.add(room)
            opened |= {wall, room}
            frontier += _beyond(room, size.side)
    walls = [(r, c) for r, c in product(range(size.side), repeat=2) if (r, c) not in opened]
    most = min(size.openings[1], len(walls))
    return frozenset(opened) | _pick(rng, walls, int(rng.integers(min(size.openings[0], most), most + 1)))


def _beyond(room: Cell, side: int) -> list[tuple[Cell, Cell]]:
    return [
        ((room[0] + r, room[1] + c), other)
        for r, c in STEPS
        if 0 <= (other := (room[0] + 2 * r, room[1] + 2 * c))[0] < side and 0 <= other[1] < side
    ]


def _pick(rng: np.random.Generator, cells: Collection[Cell], count: int) -> frozenset[Cell]:
    if len(cells) < count:
        return frozenset()
    ordered = sorted(cells)  # the order of sets is not reproducible
    return frozenset(ordered[i] for i in rng.choice(len(ordered), size=count, replace=False))


@cache
def _around(corner: Cell, side: int) -> frozenset[Cell]:
    cells = product(range(side), repeat=2)
    return frozenset((r, c) for r, c in cells if max(abs(r - corner[0]), abs(c - corner[1])) <= _NEAR)
