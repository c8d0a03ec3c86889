"""Volume that a set of reward vectors dominates: exact in up to four dimensions, sampled beyond. Higher is better.

SciPy has none, and the libraries that do (moocore, pymoo, BoTorch) are much to depend on for one number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from speciate.domain.errors import InvalidInputError
from speciate.domain.reward import pareto_front
from speciate.tournaments.statistics.arrays import FloatArray, at_least, finite, same_shape

EXACT_DIMENSIONS = 4


@dataclass(frozen=True, slots=True)
class Hypervolume:
    """A volume and how it was found.

    Attributes:
        value: The dominated volume above the reference.
        exact: False where it was sampled.
        standard_error: Of the sampling; 0 where exact.
    """

    value: float
    exact: bool
    standard_error: float


def hypervolume(
    points: ArrayLike,
    reference: ArrayLike,
    rng: np.random.Generator | None = None,
    draws: int = 100_000,
    exact_points: int | None = None,
) -> Hypervolume:
    """Return the volume of all vectors that some point dominates and that dominate the reference.

    Exact by slicing: along the last component, every slab between two neighbouring values is a hypervolume of one
    dimension less (While et al. 2006, IEEE TEC 10(1)). Cost grows as n^(d−1), so beyond four dimensions uniform draws
    from the box between the reference and the best of every component are counted.

    Args:
        points: Shape (n, d), normalised, higher is better. Points that do not exceed the reference everywhere add 0.
        reference: Shape (d,), such as zeros: the same for all that is compared.
        rng: Draws the sample; needed only beyond four dimensions.
        draws: Size of the sample.
        exact_points: Points beyond which four dimensions are sampled, too; None is any number.

    Raises:
        InvalidInputError: The shapes do not fit, a value is not finite, or a sample is needed and there is no rng.
    """
    at_least(draws, 1, "draws")
    raised, origin = finite(points, "points", 2), finite(reference, "reference", 1)
    same_shape(raised[0], origin, "A point and the reference")
    above = raised - origin
    above = above[(above > 0).all(axis=1)]
    many = exact_points is not None and above.shape[1] == EXACT_DIMENSIONS and len(above) > exact_points
    if above.shape[1] <= EXACT_DIMENSIONS and not many:
        return Hypervolume(_sliced(above), True, 0.0)
    if rng is None:
        raise InvalidInputError(
            f"A hypervolume in {above.shape[1]} dimensions is sampled.", remedy="Give an rng with a recorded seed."
        )
    return _sampled(above, rng, draws)


def _sliced(points: FloatArray) -> float:
    if len(points) == 0:
        return 0.0
    if points.shape[1] == 1:
        return float(points.max())
    points = points[pareto_front(points)]
    points = points[np.argsort(-points[:, -1], kind="stable")]
    if points.shape[1] == 2:
        # Descending in the second component; the first only counts where it grows.
        widest = np.maximum.accumulate(points[:, 0])
        return float(np.diff(widest, prepend=0.0) @ points[:, 1])
    heights = points[:, -1] - np.append(points[1:, -1], 0.0)
    return sum(float(h) * _sliced(points[: i + 1, :-1]) for i, h in enumerate(heights) if h > 0)


def _sampled(points: FloatArray, rng: np.random.Generator, draws: int) -> Hypervolume:
    if len(points) == 0:
        return Hypervolume(0.0, False, 0.0)
    points = points[pareto_front(points)]
    box = points.max(axis=0)
    sample = rng.random((draws, points.shape[1])) * box
    hit = np.zeros(draws, dtype=np.bool_)
    for point in points:
        hit |= (sample <= point).all(axis=1)
    share, volume = float(hit.mean()), float(np.prod(box))
    return Hypervolume(share * volume, False, volume * float(np.sqrt(share * (1 - share) / draws)))
