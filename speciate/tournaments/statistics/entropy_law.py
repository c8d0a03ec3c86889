"""Fit the law between policy entropy and reward over a training run: R = −a·exp(H) + b.

Source: Cui et al., arXiv 2505.22617, section 2. A diagnostic: a straight line in H often fits as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from speciate.domain.errors import InvalidInputError

_ROUNDING: Final = 1e-12
"""Range of rewards, as a share of the largest, below which they are constant but for rounding."""


def fit_entropy_law(entropies: Sequence[float], rewards: Sequence[float]) -> dict[str, float]:
    """Return the numbers of an ``EntropyFit``, fitted by least squares."""
    h, r = np.asarray(entropies, dtype=np.float64), np.asarray(rewards, dtype=np.float64)
    if h.ndim != 1 or h.shape != r.shape or not (np.isfinite(h).all() and np.isfinite(r).all()):
        raise InvalidInputError(f"{h.size} entropies and {r.size} rewards: expected equal numbers, all finite.")
    if len(h) < 3 or np.ptp(h) < 1e-9:
        raise InvalidInputError(f"{len(h)} measurements: the law needs at least 3 with different entropies.")
    slope, intercept, explained = _line(np.exp(h), r)
    law = {"a": -slope, "b": intercept, "ceiling": intercept + slope}
    return law | {"r_squared": explained, "r_squared_line": _line(h, r)[2]}


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float, float]:
    slope, intercept = np.polyfit(x, y, 1)
    residual = float(np.sum((y - slope * x - intercept) ** 2))
    total = float(np.sum((y - y.mean()) ** 2))
    constant = total == 0.0 or np.ptp(y) <= _ROUNDING * np.abs(y).max()
    return float(slope), float(intercept), 1.0 if constant else 1.0 - residual / total
