"""Parent selection on vector rewards. A new operator is one file, one test and one line in ``SELECTIONS``."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from speciate.domain.reward import FloatArray
from speciate.search.selection.lexicase import epsilon_lexicase, lexicase
from speciate.search.selection.pareto import pareto_tournament
from speciate.search.selection.scalarization import random_scalarization

Selector = Callable[[FloatArray, np.random.Generator], int]
"""Given normalised rewards of shape (n, k), n ≥ 1, higher is better, returns the position of the chosen parent."""

SELECTIONS: dict[str, Selector] = {
    "epsilon_lexicase": epsilon_lexicase,
    "lexicase": lexicase,
    "random_scalarization": random_scalarization,
    "pareto_tournament": pareto_tournament,
}
