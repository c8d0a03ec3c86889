"""Move all floats of a program along the directions in which programs of the same shape differ.

The covariance matrix of a population tells which constants have to change together, as in CMA-ES (Hansen 2016,
arXiv 1604.00772, section 3.1). The mutator is stateless, so the population is that of one request.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from speciate.policies.mutators.numbers import written
from speciate.policies.mutators.source import Source, SourceEdit


def spread(source: Source, others: Sequence[Source], rng: np.random.Generator) -> list[SourceEdit]:
    """Return edits that add a sample of the covariance of similar programs to all floats; empty if there are none.

    Of ``others``, those with other constants than floats in the same number are left out.
    """
    points = _points([source, *others])
    if len(points) < 2:
        return []
    centred = points - points.mean(axis=0)
    size = math.exp(rng.normal(-0.5, 0.7))
    step = size * (rng.standard_normal(len(points)) @ centred) / math.sqrt(len(points) - 1)
    unit = float(np.abs(step).mean())
    floats = [source.numbers[i] for i in source.floats]
    return [
        written(number, number.value + move, unit) for number, move in zip(floats, step.tolist(), strict=True) if move
    ]


def _points(sources: Sequence[Source]) -> NDArray[np.float64]:
    first = sources[0]
    alike = [s for s in sources if s.shape == first.shape] if first.floats else []
    rows = dict.fromkeys(tuple(float(s.numbers[i].value) for i in s.floats) for s in alike)
    return np.array(list(rows), dtype=float)
