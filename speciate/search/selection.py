"""Parent selection on normalised reward vectors. A new operator is one function and one line in ``SELECTIONS``.

All operators have the signature ``(points, rng, weights) -> row``:

- ``points``: normalised rewards, shape (n, k), n ≥ 1, higher is better, oldest candidate first;
- ``rng``: the only source of randomness;
- ``weights``: the island's weighting of the objectives, shape (k,); not every operator reads it;
- result: the selected row.
"""

from collections.abc import Callable
from typing import Final

import numpy as np

from speciate.domain.arrays import FloatArray
from speciate.domain.reward import pareto_front

SelectionOperator = Callable[[FloatArray, np.random.Generator, FloatArray], int]


def epsilon_lexicase(points: FloatArray, rng: np.random.Generator, weights: FloatArray) -> int:  # noqa: ARG001
    """Select by semi-dynamic ε-lexicase: ε is the median absolute deviation of each objective over all rows.

    The threshold follows the best row still in the pool. Sources: Spector 2012; La Cava, Spector, Danai 2016 (GECCO);
    La Cava, Helmuth, Spector, Moore 2019 (Evolutionary Computation 27:3).

    ``rng`` draws the order of the objectives, then one of the remaining rows.
    """
    return _filter_by_objective(points, deviations(points), rng)


def lexicase(points: FloatArray, rng: np.random.Generator, weights: FloatArray) -> int:  # noqa: ARG001
    """Select by lexicase without tolerance, for pass/fail rewards. Arguments as for ``epsilon_lexicase``."""
    return _filter_by_objective(points, np.zeros(points.shape[1]), rng)


def random_scalarization(points: FloatArray, rng: np.random.Generator, weights: FloatArray) -> int:  # noqa: ARG001
    """Select the best row under weights w ~ Dir(1) drawn for this call.

    The search-time counterpart of VPO's reward (arXiv 2605.22817); the idea is from ParEGO (Knowles 2006).
    """
    return _best(points @ rng.dirichlet(np.ones(points.shape[1])), rng)


def best_weighted(points: FloatArray, rng: np.random.Generator, weights: FloatArray) -> int:
    """Select the best row under the island's weighting: the greedy scalar baseline of the vector operators.

    ``rng`` breaks ties.
    """
    return _best(points @ weights, rng)


def pareto_tournament(
    points: FloatArray,
    rng: np.random.Generator,
    weights: FloatArray,  # noqa: ARG001 - one signature for all operators
    size: int = 4,
) -> int:
    """Draw ``size`` rows, then one that no other of them dominates (Horn, Nafpliotis, Goldberg 1994).

    With many objectives nearly every row is nondominated and selection becomes uniform: prefer ε-lexicase there.
    """
    contestants = rng.choice(len(points), size=min(size, len(points)), replace=False)
    winners = contestants[pareto_front(points[contestants])]
    return int(winners[rng.integers(len(winners))])


def softmax(points: FloatArray, rng: np.random.Generator, weights: FloatArray, temperature: float = 0.1) -> int:
    """Draw a row with probability ∝ exp(wᵀr / temperature): Boltzmann selection.

    Sources: Romera-Paredes et al. 2024 (FunSearch, Nature 625, Methods); arXiv 2501.09891, section 3.2 (Mind
    Evolution). The temperature is in units of normalised reward, where 1 is the declared range.
    """
    scores = (points @ weights) / temperature
    chances = np.exp(scores - scores.max())
    edges = chances.cumsum()
    return int(min(edges.searchsorted(rng.random() * edges[-1], side="right"), len(points) - 1))


def curiosity(points: FloatArray, rng: np.random.Generator, weights: FloatArray) -> int:  # noqa: ARG001
    """Draw a row with probability ∝ 1 / its rank by age: 1 for the newest elite, ½ for the next.

    Cully and Demiris 2018 (arXiv 1708.09251, section IV) keep a curiosity score per cell that rises when a child of the
    cell enters the archive and falls when it does not. The archive stores no such score. Age approximates it: a new
    elite is such a child, and an old one has been selected many times without a child that took its cell.

    ``rng`` draws the row.
    """
    n = len(points)
    edges = (1.0 / np.arange(1, n + 1)).cumsum()
    rank = min(int(edges.searchsorted(rng.random() * edges[-1], side="right")), n - 1)
    return n - 1 - rank


SELECTIONS: Final[dict[str, SelectionOperator]] = {
    "epsilon_lexicase": epsilon_lexicase,
    "lexicase": lexicase,
    "random_scalarization": random_scalarization,
    "best_weighted": best_weighted,
    "pareto_tournament": pareto_tournament,
    "softmax": softmax,
    "curiosity": curiosity,
}
"""Operators by their option name."""


def deviations(points: FloatArray) -> FloatArray:
    """Return the median absolute deviation of each column, shape (k,), of points of shape (n, k)."""
    return np.asarray(np.median(np.abs(points - np.median(points, axis=0)), axis=0))


def _filter_by_objective(points: FloatArray, epsilon: FloatArray, rng: np.random.Generator) -> int:
    """Filter the pool by one random objective after another, then draw one of the remaining rows.

    An objective on which the pool spreads by at most ε filters no row, now or later. Drawing among the other objectives
    only keeps the order uniform, as in the textbook algorithm, and every step shrinks the pool.
    """
    pool = np.arange(len(points))
    inside = points
    while len(pool) > 1:
        threshold = inside.max(axis=0) - epsilon
        (filtering,) = (inside.min(axis=0) < threshold).nonzero()
        if not len(filtering):
            break
        objective = filtering[rng.integers(len(filtering))]
        passed = inside[:, objective] >= threshold[objective]
        pool, inside = pool[passed], inside[passed]
    return int(pool[rng.integers(len(pool))])


def _best(scores: FloatArray, rng: np.random.Generator) -> int:
    (best,) = (scores == scores.max()).nonzero()
    return int(best[rng.integers(len(best))])
