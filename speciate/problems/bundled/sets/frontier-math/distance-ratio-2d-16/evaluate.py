"""Score 16 points in 2 dimensions by the ratio of their largest to their smallest distance."""

import distance_ratio

N = 16
DIMENSIONS = 2


def evaluate(candidate, context):
    """Return the rewards of the answer that ``solve()`` returns."""
    return distance_ratio.evaluate(candidate, context, N, DIMENSIONS)
