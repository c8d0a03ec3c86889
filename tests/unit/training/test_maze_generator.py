"""Mazes: conflicting objectives, scores of routes, and reproducible generation."""

from itertools import product

import numpy as np
import pytest

from speciate.domain.errors import InvalidInputError
from speciate.training.tasks.maze_generator import PAPER, SMALL, Maze, MazeSize, make_maze


@pytest.fixture(scope="module", params=[PAPER, SMALL], ids=["paper", "small"])
def mazes(request):
    return [make_maze(np.random.default_rng([i, 7]), request.param) for i in range(20)]


def test_either_treasure_fits_and_never_both(mazes):
    for maze in mazes:
        for treasure in (maze.gold, maze.diamonds):
            route = maze.shortest_route(treasure)
            assert len(route) - 1 <= maze.budget
            completion, gold, diamond, no_lava = maze.score(route)
            assert (completion, no_lava) == (1.0, 1.0)
            assert (gold if treasure is maze.gold else diamond) == 1.0
        both = maze.shortest(maze.gold | maze.diamonds, within=100)
        assert both is None or both > maze.budget


def test_start_and_exit_are_on_one_diagonal_and_treasures_around_the_other(mazes):
    for maze in mazes:
        check_corners(maze)


def check_corners(maze):
    last = maze.side - 1
    corners = {(0, 0), (0, last), (last, 0), (last, last)}
    assert {maze.start, maze.exit} < corners
    assert abs(maze.start[0] - maze.exit[0]) == abs(maze.start[1] - maze.exit[1]) == last
    others = corners - {maze.start, maze.exit}

    def near(cells):
        return {corner for corner in others if all(max(abs(r - corner[0]), abs(c - corner[1])) <= 2 for r, c in cells)}

    assert len(near(maze.gold)) == len(near(maze.diamonds)) == 1
    assert near(maze.gold) != near(maze.diamonds)
    assert len(maze.gold) == len(maze.diamonds)
    places = [maze.gold, maze.diamonds, maze.lava, {maze.start, maze.exit}]
    assert len(set().union(*places)) == sum(map(len, places))
    assert set().union(*places) <= maze.open


def test_sizes_are_kept(mazes):
    for maze in mazes:
        size = PAPER if maze.side == 9 else SMALL
        assert size.items[0] <= len(maze.gold) <= size.items[1]
        assert size.lava[0] <= len(maze.lava) <= size.lava[1]
        detours = [maze.shortest(pieces, within=100) for pieces in (maze.gold, maze.diamonds)]
        assert maze.budget == max(detours) + size.slack <= size.longest
        rooms = {cell for cell in product(range(maze.side), repeat=2) if cell[0] % 2 == cell[1] % 2 == 0}
        assert rooms <= maze.open


def test_a_seed_gives_the_same_maze_and_another_seed_another(mazes):
    size = PAPER if mazes[0].side == 9 else SMALL
    assert [make_maze(np.random.default_rng([i, 7]), size) for i in range(20)] == mazes
    assert len(set(mazes)) == 20


#    S . G
#    # # .
#    D L E   a corridor over gold, and one over diamonds and lava that a wall closes
TINY = Maze(
    side=3,
    open=frozenset({(0, 0), (0, 1), (0, 2), (1, 2), (2, 2), (2, 1), (2, 0)}),
    start=(0, 0),
    exit=(2, 2),
    gold=frozenset({(0, 2)}),
    diamonds=frozenset({(2, 0)}),
    lava=frozenset({(2, 1)}),
    budget=8,
)
SHORT = [(0, 0), (0, 1), (0, 2), (1, 2), (2, 2)]


def test_a_route_is_rewarded_for_what_it_collects():
    assert TINY.score(SHORT) == (1.0, 1.0, 0.0, 1.0)
    detour = [*SHORT, (2, 1), (2, 0), (2, 1), (2, 2)]
    assert TINY.score(detour) == (1.0, 1.0, 1.0, 0.0)


@pytest.mark.parametrize(
    "route",
    [
        [],
        [(0, 0)],
        SHORT[1:],
        SHORT[:-1],
        [(0, 0), (1, 0), (2, 0), (2, 1), (2, 2)],
        [(0, 0), (0, 2), (1, 2), (2, 2)],
        [(0, 0), (-1, 0), *SHORT],
        [*SHORT[:2], (0, 0), (0, 1), (0, 0), (0, 1), (0, 0), *SHORT[1:]],
    ],
    ids=["empty", "start only", "begins elsewhere", "ends early", "through a wall", "jumps", "leaves", "too long"],
)
def test_invalid_routes_get_no_reward(route):
    assert TINY.score(route) == (0.0, 0.0, 0.0, 0.0)


def test_the_drawing_shows_all_cells():
    assert TINY.rows == ("S.G", "##.", "DLE")


def test_impossible_sizes_are_reported():
    with pytest.raises(InvalidInputError, match="fits one detour and not both"):
        make_maze(np.random.default_rng(0), MazeSize(side=5, openings=(0, 0), items=(20, 20)))
