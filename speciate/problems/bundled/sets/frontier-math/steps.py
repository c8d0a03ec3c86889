"""Check answers that are the heights of a step function."""

import numpy as np
from points import is_number

MOST = 2000


def steps_of(value, context, *, negative):
    """Return the heights as an array; end the evaluation if they are not what is expected."""
    if not isinstance(value, list) or not 1 <= len(value) <= MOST:
        context.invalid(f"expected a list of 1 to {MOST} heights")
    if not all(is_number(x) for x in value):
        context.invalid("expected finite numbers")
    heights = np.array(value, dtype=float)
    if not negative and heights.min() < 0:
        context.invalid("a height is negative")
    return heights


def scaled(heights):
    """Return heights times the power of two that brings the largest into [1/2, 1): no product underflows unnoticed."""
    return np.ldexp(heights, -np.frexp(np.abs(heights).max())[1])
