"""Who becomes a parent: operators on normalised reward vectors, one file each and one line in ``SELECTIONS``.

All have one signature, ``(points, rng, weights) -> row``:

- ``points``: normalised rewards, shape (n, k), n ≥ 1, higher is better, in order of birth;
- ``rng``: the only source of randomness;
- ``weights``: the weighting that the island prefers, shape (k,), for the operators that use one;
- the result is the row that was chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from speciate.domain.reward import FloatArray
from speciate.search.selection.curiosity import curiosity
from speciate.search.selection.lexicase import epsilon_lexicase, lexicase
from speciate.search.selection.pareto import pareto_tournament
from speciate.search.selection.scalarization import best_weighted, random_scalarization
from speciate.search.selection.softmax import softmax

SelectionOperator = Callable[[FloatArray, np.random.Generator, FloatArray], int]

SELECTIONS: Final[dict[str, SelectionOperator]] = {
    "epsilon_lexicase": epsilon_lexicase,
    "lexicase": lexicase,
    "random_scalarization": random_scalarization,
    "best_weighted": best_weighted,
    "pareto_tournament": pareto_tournament,
    "softmax": softmax,
    "curiosity": curiosity,
}
"""The operators by the name that options give."""

__all__ = ["SELECTIONS", "SelectionOperator"]
