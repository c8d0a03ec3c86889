"""Maze task: routes that collect gold or diamonds and never both, as problems of kind ``data``."""

import inspect
import json
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Final

import numpy as np

from speciate.domain.problem import Problem
from speciate.prompts.codecs import maze as codec
from speciate.training.tasks import maze_score
from speciate.training.tasks.maze_generator import PAPER, REWARDS, SMALL, Cell, Maze, MazeSize, make_maze
from speciate.training.tasks.task import Content, Split, drawn_problems

_TRIES: Final = 6
_DIRECT: Final = 0.4
_ALL: Final = 0.05
_THROUGH_LAVA: Final = 0.15
_FEW: Final = 3

_DESCRIPTION: Final = """Find a route through a maze, as cells in order, each written as row and column: 00 01 11.

The maze, row by row from row 0, column 0 at the left: # wall, . open, S start, E exit, G gold, D diamond, L lava.

{rows}

A route starts at S, goes to a neighbouring open cell in each step (up, down, left, right), ends at E and has at most
{budget} steps. One that does is rewarded for the share of the gold and the share of the diamonds that it passes, and
for keeping out of lava. The budget is enough for all gold or for all diamonds, never for both."""


@dataclass(frozen=True)
class MazeTask:
    name: str
    size: MazeSize

    rewards: ClassVar[tuple[str, ...]] = REWARDS
    answers: ClassVar[int] = 3
    codec: ClassVar[str | None] = "maze"

    @property
    def max_tokens(self) -> int:
        """Cells of the longest route: one more than its steps."""
        return self.size.longest + 1

    def problems(self, split: Split, count: int, *, start: int = 0) -> Iterator[Problem]:
        def draw(rng: np.random.Generator) -> Content:
            maze = make_maze(rng, self.size)
            return {"rows": maze.rows, "budget": maze.budget}

        for number, content in drawn_problems(self.name, split, count, start, draw):
            yield self._problem(f"{self.name}-{split}-{number}", content)

    def score(self, batch: Sequence[tuple[Problem, Sequence[str]]]) -> list[list[tuple[float, ...]]]:
        """Return the rewards of routes; they are data, so they are scored in this process."""
        return [[_maze(problem).score(maze_score.read_route(text)) for text in texts] for problem, texts in batch]

    def vocabulary(self) -> tuple[str, ...]:
        return codec.vocabulary(self.size.side, self.size.longest)

    def demonstrate(self, problem: Problem, rng: np.random.Generator) -> str:
        """Return the shortest route through some pieces of one treasure, rarely all of them."""
        maze = _maze(problem)
        avoid = bool(rng.random() >= _THROUGH_LAVA)
        treasure = sorted(maze.gold if rng.random() < 0.5 else maze.diamonds)
        some = len(treasure) if rng.random() < _ALL else int(rng.integers(1, max(2, len(treasure))))
        pieces = 0 if rng.random() < _DIRECT else some
        goals = frozenset(treasure[i] for i in rng.choice(len(treasure), size=pieces, replace=False))
        route = maze.shortest_route(goals, avoid_lava=avoid, rng=rng)
        if route is None or len(route) - 1 > maze.budget:
            route = maze.shortest_route(frozenset(), rng=rng) or []
        return _text(route)

    def improve(self, problem: Problem, rng: np.random.Generator) -> tuple[str, str] | None:
        """Return a route and a better one that collects one more piece or avoids lava, by a detour or a new plan."""
        maze = _maze(problem)
        # Parents resemble those of a search: the best of a few that have not met a target yet.
        routes = [maze_score.read_route(self.demonstrate(problem, rng)) for _ in range(_FEW)]
        unsolved = [route for route in routes if max(maze.score(route)[1:3]) < 1]
        if not unsolved:
            return None
        parent = max(unsolved, key=lambda route: sum(maze.score(route)))
        before = maze.score(parent)
        for _ in range(_TRIES):
            child = _detour(maze, parent, rng) if rng.random() < 0.5 else _replanned(maze, parent, rng)
            if child is not None and any(b > a for a, b in zip(before, maze.score(child), strict=True)):
                return _text(parent), _text(child)
        return None

    def _problem(self, slug: str, content: Content) -> Problem:
        return Problem.model_validate(
            {
                "slug": slug,
                "title": f"A maze of {self.size.side} × {self.size.side} cells with {content['budget']} steps",
                "description": _DESCRIPTION.format(rows="\n".join(content["rows"]), budget=content["budget"]),
                "source": "Generated after the maze task of arXiv 2605.22817.",
                "kind": "data",
                "objectives": [{"name": name} for name in REWARDS],
                "weights": dict.fromkeys(REWARDS, 1.0),
                "targets": [
                    {"name": "all_gold", "rule": "gold >= 1", "unlock": True},
                    {"name": "all_diamonds", "rule": "diamond >= 1"},
                ],
                "evaluator": inspect.getsource(maze_score),
                "files": {codec.FILE: json.dumps(content)},
                "preload": [],
            }
        )


MAZE: Final = MazeTask("maze", SMALL)
MAZE_PAPER: Final = MazeTask("maze-9", PAPER)


def _maze(problem: Problem) -> Maze:
    return _read(problem.files[codec.FILE])


@lru_cache(maxsize=8192)
def _read(text: str) -> Maze:
    content = json.loads(text)
    rows = content["rows"]
    cells = {(r, c): mark for r, row in enumerate(rows) for c, mark in enumerate(row) if mark != "#"}

    def marked(mark: str) -> frozenset[Cell]:
        return frozenset(cell for cell, character in cells.items() if character == mark)

    (start,), (finish,) = marked("S"), marked("E")
    return Maze(
        len(rows), frozenset(cells), start, finish, marked("G"), marked("D"), marked("L"), int(content["budget"])
    )


def _text(route: Sequence[Cell]) -> str:
    return " ".join(f"{r}{c}" for r, c in route)


def _detour(maze: Maze, route: Sequence[Cell], rng: np.random.Generator) -> list[Cell] | None:
    """Return the route with one stretch replaced: by a way through a missing piece, or around lava."""
    missing = sorted((maze.gold | maze.diamonds) - set(route))
    burnt = [i for i, cell in enumerate(route) if cell in maze.lava]
    target = int(rng.integers(len(missing) + bool(burnt)))
    if target == len(missing):
        i, j = burnt[0] - 1, burnt[-1] + 1
        way = _ways(maze, route[i]).get(route[j])
        return None if way is None else [*route[: i + 1], *way[1:], *route[j + 1 :]]
    return _through(maze, route, missing[target], rng)


def _through(maze: Maze, route: Sequence[Cell], piece: Cell, rng: np.random.Generator) -> list[Cell] | None:
    """Return the route with a detour through a piece, at most two steps longer than the shortest such detour."""
    ways = _ways(maze, piece)
    reachable = [(i, len(ways[cell]) - 1) for i, cell in enumerate(route) if cell in ways]
    # Steps of the whole route if it leaves at i and returns at j.
    lengths = [
        (i + there + back + len(route) - 1 - j, i, j) for i, there in reachable for j, back in reachable if i <= j
    ]
    shortest = min((steps for steps, _, _ in lengths), default=maze.budget + 1)
    if shortest > maze.budget:
        return None
    near = [(i, j) for steps, i, j in lengths if steps <= min(maze.budget, shortest + 2)]
    i, j = near[int(rng.integers(len(near)))]
    return [*route[:i], *reversed(ways[route[i]]), *ways[route[j]][1:], *route[j + 1 :]]


def _replanned(maze: Maze, route: Sequence[Cell], rng: np.random.Generator) -> list[Cell] | None:
    """Return the shortest route through a route's pieces of one treasure and one more piece."""
    treasure = (maze.gold, maze.diamonds)[int(rng.integers(2))]
    missing = sorted(treasure - set(route))
    goals = (treasure & set(route)) | {missing[int(rng.integers(len(missing)))]}
    replanned = maze.shortest_route(goals, rng=rng)
    return replanned if replanned is not None and len(replanned) - 1 <= maze.budget else None


def _ways(maze: Maze, begin: Cell) -> dict[Cell, list[Cell]]:
    """Return a shortest way from a cell to every cell that is reachable without lava."""
    ways = {begin: [begin]}
    queue = deque([begin])
    while queue:
        cell = queue.popleft()
        for beside in maze.neighbours[cell]:
            if beside not in ways and beside not in maze.lava:
                ways[beside] = [*ways[cell], beside]
                queue.append(beside)
    return ways
