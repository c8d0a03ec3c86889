"""Codec for mazes: one token per walkable cell and one for the budget; a route is its cells in order.

``S60 .50 .40 G41 … <b17> <one>`` is a prompt, ``60 50 40 41 …`` an answer.
"""

import json
import re
from collections.abc import Iterator
from typing import Final

from speciate.domain.candidate import Individual
from speciate.domain.errors import InvalidInputError
from speciate.domain.problem import Problem
from speciate.prompts.codecs.codec import EDIT, MANY, ONE, WORDS, split_answers

FILE: Final = "maze.json"
"""File of a maze problem with ``{"rows": ["S.#…", …], "budget": 17}``."""

_MARKS: Final = "SE.GDL"
_CELL: Final = re.compile(r"\d\d")
_MET: Final = ("exit", "gold", "diamond", "lava")


class MazeCodec:
    """Encodes mazes with sides of at most ten cells."""

    def prompt(self, problem: Problem, *, answers: int, parent: Individual | None = None) -> str:
        tokens = list(_maze_tokens(problem))
        route = None if parent is None else self.write(parent.program)
        if parent is not None and route:
            rewards = parent.rewards or (0.0,) * len(_MET)
            tokens += [EDIT, *route, *(_met(name, value) for name, value in zip(_MET, rewards, strict=True))]
        return " ".join([*tokens, ONE if answers == 1 else MANY])

    def read(self, text: str, *, answers: int) -> list[str]:
        return [
            " ".join(cells) if all(_CELL.fullmatch(cell) for cell in cells) else ""
            for cells in split_answers(text, answers)
        ]

    def write(self, candidate: str) -> list[str] | None:
        cells = candidate.split()
        return cells if cells and all(_CELL.fullmatch(cell) for cell in cells) else None


def vocabulary(side: int, longest: int) -> tuple[str, ...]:
    """Return all tokens of mazes with ``side`` cells along an edge and budgets up to ``longest``."""
    cells = [f"{r}{c}" for r in range(side) for c in range(side)]
    marked = [mark + cell for mark in _MARKS for cell in cells]
    outcomes = [_met(name, value) for name in _MET for value in (0.0, 1.0)]
    return (*WORDS, *cells, *marked, *(f"<b{budget}>" for budget in range(1, longest + 1)), *outcomes)


def _maze_tokens(problem: Problem) -> Iterator[str]:
    try:
        maze = json.loads(problem.files[FILE])
        rows, budget = maze["rows"], int(maze["budget"])
        for r, row in enumerate(rows):
            yield from (f"{mark}{r}{c}" for c, mark in enumerate(row) if mark in _MARKS)
        yield f"<b{budget}>"
    except (KeyError, TypeError, ValueError):
        raise InvalidInputError(
            f"problem {problem.slug!r} is not a maze, as codec 'maze' requires.",
            remedy="Give the run a problem of 'speciate problems import task:maze', or another policy.",
        ) from None


def _met(name: str, value: float) -> str:
    return f"<{name}{'+' if value >= 1 else '-'}>"
