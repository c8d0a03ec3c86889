"""Score a packing of 32 circles in the unit square."""

import circles

N = 32


def evaluate(candidate, context):
    """Return the rewards of the answer that ``solve()`` returns."""
    return circles.evaluate(candidate, context, N)
