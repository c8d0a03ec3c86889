"""The cells of the archive: where a candidate may stay, and what each place ranks by.

Two kinds, both native to vector rewards. A *trade-off* cell belongs to one weight vector and keeps the best candidate
under it, so the archive holds a specialist for every trade-off. A *feature* cell belongs to a range of a feature of
the program (MAP-Elites, Mouret & Clune 2015) and ranks by its island's own weighting. The number of cells is bounded
whatever the number of candidates, so a choice among them costs the same at 10³ and at 10⁶.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from functools import lru_cache
from itertools import combinations
from typing import Final

import numpy as np

from speciate.domain.problem import Problem
from speciate.domain.reward import FloatArray

MAX_TRADE_OFFS: Final = 24
"""Most trade-off cells of an island."""


@lru_cache(maxsize=256)
def trade_offs(k: int) -> FloatArray:
    """Return the weight vectors of the trade-off cells.

    In this order, as far as ``MAX_TRADE_OFFS`` allows: the even weighting, the k specialists, the even pairs. With
    more objectives than cells the specialists are those of contiguous blocks of objectives.

    Args:
        k: Objectives, at least 1.

    Returns:
        Shape (D, k), rows summing to 1, not to be changed.
    """
    even = np.full((1, k), 1.0 / k)
    if k == 1:
        weights = even
    elif k < MAX_TRADE_OFFS:
        pairs = [(np.eye(k)[i] + np.eye(k)[j]) / 2 for i, j in combinations(range(k), 2)] if k > 2 else []
        weights = np.vstack([even, np.eye(k), *pairs])[:MAX_TRADE_OFFS]
    else:
        blocks = np.array_split(np.arange(k), MAX_TRADE_OFFS - 1)
        weights = np.vstack([even, *(np.isin(np.arange(k), block) / len(block) for block in blocks)])
    weights.flags.writeable = False
    return weights


@lru_cache(maxsize=4096)
def island_weights(weights: tuple[float, ...] | None, k: int, seed: int, island: int) -> FloatArray:
    """Return the weighting by which an island ranks its feature cells.

    Island 0 has the problem's declared weights; where none are declared, and on every other island, they are drawn
    from Dir(1) by run and island. Islands are thereby specialists of different trade-offs.

    Args:
        weights: The problem's declared weights over its k selected objectives, or None.
        k: Objectives.
        seed: Seed of the run.
        island: The island.

    Returns:
        Shape (k,), summing to 1, not to be changed.
    """
    if island == 0 and weights is not None:
        drawn = np.array(weights)
    else:
        drawn = np.random.default_rng([seed, island, 0x15]).dirichlet(np.ones(k))
    drawn.flags.writeable = False
    return drawn


def weights_of(problem: Problem, seed: int, island: int) -> FloatArray:
    """Return ``island_weights`` for a problem."""
    return island_weights(problem.weight_vector, len(problem.space.selected), seed, island)


def trade_off_cell(position: int) -> str:
    """Return the name of a trade-off cell."""
    return f"w{position}"


def _length(program: str) -> int:
    return int(math.log(max(1, len(program)), 1.3))


def _lines(program: str) -> int:
    return int(math.log(program.count("\n") + 1, 1.3))


def _depth(program: str) -> int:
    try:
        tree = ast.parse(program)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return 0
    level: list[ast.AST] = [tree]
    depth = 0
    while level and depth < _DEEPEST:
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        depth += 1
    return depth // 2


_DEEPEST: Final = 64

FEATURES: Final[dict[str, Callable[[str], int]]] = {"length": _length, "lines": _lines, "depth": _depth}
"""Features of a program, each a bin number: characters and lines on a logarithmic scale, depth of the syntax tree."""


def feature_cell(features: tuple[str, ...], program: str) -> str:
    """Return the name of a program's feature cell, such as ``length:21,depth:4``."""
    return ",".join(f"{name}:{FEATURES[name](program)}" for name in features)
